/* Matching: which predicates do the attributes of messages meet?

   Values of all kinds have one order: by kind first, then by value. So what a predicate says of an
   attribute is a sorted list of half-open ranges (a condition), and a clause is a conjunction of
   conditions, with a rest that only Python can evaluate if need be.

   Clauses stand in a tree of nodes. A node with few clauses lists them, with a bit for each name
   that they need. Once it has more it divides: a clause with an equality goes to a child that only
   events with this value reach; one without, where clauses ask for many different names, to a child
   that only events with this attribute reach; of several the smallest. All others go into blocks.

   A block numbers its clauses and cuts the values of each attribute (an axis) into cells. For each
   cell there are two rows of bits: which clauses fail for all values in it, and which may fail for
   some (those are in doubt). What is left after one row per axis is found, or in doubt and tested.

   `accord.core.predicates.partition` does the same in Python; `compiled` packs the clauses. */
#include "native.h"
#include <math.h>
#include <stdlib.h>

enum { NUMBER, STRING, BOOLEAN, TIMESTAMP, BEYOND, POINT };
enum { LISTED = 32, MAX_DEPTH = 16, MAX_AXES = 32, CELLS = 64, MAX_CUTS = CELLS + 5 };
enum { MAX_BLOCK = 8192, MAX_SAMPLE = 512, MAX_BOUNDS = 8 * MAX_SAMPLE, LAYOUT = 32 };
enum { LINE = 64, MANY_NAMES = 24, LONGEST_CUT = 64, LONGEST_LITERAL = 64 };
enum { NO = 0, YES = 1, CUT = 2, UNREADABLE = 3 };
enum { UNDECIDED = 0 };
#define NONE UINT32_MAX
#define UNASKED (UINT32_MAX - 8)
#define COST_SHIFT 6 /* a step of work is to go through 64 bytes of text */

typedef struct { /* `compiled` has the same layout */
    union {
        double number;
        const char *text;
        uint64_t offset; /* of the text, while packed */
    };
    uint32_t length; /* of the text */
    uint16_t extra;  /* a number is the largest double not above it, and this much more */
    uint8_t kind;
} Value;

typedef struct {
    Value low, high; /* a high of kind POINT: `low` alone */
} Range;

typedef struct {
    const Range *ranges;
    uint32_t name, count : 31, has_null : 1;
} Condition;

typedef struct { /* a name that conditions ask for, and what the event in hand has under it */
    char *name;
    uint64_t hash, event;
    uint32_t length, references;
    uint32_t first, count; /* where its values are; `first` links columns that are free */
} Column;

typedef struct Node Node;
typedef struct Block Block;
typedef struct Clause Clause;

typedef struct {
    PyObject *key;   /* NULL where it is free */
    Clause *clauses; /* linked */
    uint64_t event;  /* it was found for; the next that is free */
} Predicate;

struct Clause {
    Clause *next; /* of its predicate */
    PyObject *rest;
    Node *node;
    Block *block;
    uint64_t needs; /* bits of the names it can't do without */
    uint32_t predicate, slot, weight, count;
    Condition conditions[];
};

typedef struct {
    uint64_t needs;
    Clause *clause;
} Listed;

struct Node {
    Node *parent;
    Listed *listed;
    Block *blocks;
    uint64_t hash, value_names, any_names; /* bits of the names that lead to children */
    size_t count, room;                    /* of what it lists */
    uint32_t name, size, depth;
    bool is_divided, names_vary;
    Value value; /* that events need to come here; ANY for the name alone */
    char text[];
};

typedef struct {
    uint32_t name, cuts, row;
    Value cut[MAX_CUTS];
} Axis;

struct Block {
    Block *next;
    Clause **clauses;
    uint64_t *used, *unsure, *rows;
    uint32_t axes, words, count, alive, built, ranges, outside;
    Axis axis[];
};

typedef struct {
    uint64_t hash;
    void *item;
} Slot;

typedef struct { /* open addressing; whoever looks up compares what has the same hash */
    Slot *slots;
    size_t mask, used;
} Table;

typedef struct {
    uint32_t *items;
    size_t count, room;
} Numbers;

typedef struct {
    PyObject_HEAD
    PyObject *instant; /* a timestamp, or a text that says one, as integer; None for others */
    PyObject *decode;  /* a block of properties as attributes */
    uint64_t seed;
    Table names, children;
    Column *columns;
    size_t column_count, column_room;
    Predicate *predicates;
    size_t predicate_count, predicate_room;
    uint32_t free_column, free_predicate;
    Node **roots;
    size_t root_count, root_room;
    bool is_busy;
    /* The event in hand. */
    uint64_t event, present_bits;
    Numbers present, found;
    Value *values;
    size_t value_count, value_room, text_size;
    int64_t work, limit;
    PyObject *attributes, *document;
    Bytes block;
    size_t block_size;
} Matcher;

static int fail(PyObject *type, const char *message)
{
    if (!PyErr_Occurred()) PyErr_SetString(type, message);
    return FAILED;
}

/* ---- values ---- */

static const Value ANY = {.kind = POINT};

/* Whether it is below all other values of its kind. */
static bool is_start(const Value *value)
{
    return value->kind == STRING ? value->length == 0 : value->number == -INFINITY;
}

static Value number_of(double number, uint8_t kind)
{
    return (Value){.number = number + 0.0, .kind = kind}; /* + 0.0: one zero only */
}

static Value integer_of(int64_t integer, uint8_t kind)
{
    uint64_t size = integer < 0 ? -(uint64_t)integer : (uint64_t)integer;
    int64_t step = 1;
    for (; size >> 53; size >>= 1) step *= 2;
    int64_t base = integer & ~(step - 1); /* the largest multiple of step not above it */
    Value value = number_of((double)base, kind);
    value.extra = (uint16_t)(integer - base);
    return value;
}

static int compare(const void *left, const void *right)
{
    const Value *a = left, *b = right;
    if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
    if (a->kind == STRING) {
        int order = memcmp(a->text, b->text, a->length < b->length ? a->length : b->length);
        return order ? order : (a->length > b->length) - (a->length < b->length);
    }
    if (a->number != b->number) return a->number < b->number ? -1 : 1;
    return (int)a->extra - (int)b->extra;
}

/* How many of the sorted `values`, which stand `stride` apart, are below `value` (or equal). */
static inline uint32_t count_below(const Value *values, uint32_t count, size_t stride,
                                   const Value *value, bool or_equal)
{
    uint32_t low = 0;
    while (low < count) {
        uint32_t middle = (low + count) / 2;
        if (compare(&values[middle * stride], value) < or_equal)
            low = middle + 1;
        else
            count = middle;
    }
    return low;
}

static uint64_t hash_value(uint64_t seed, const Value *value)
{
    uint64_t word;
    if (value->kind == STRING) return hash_bytes(seed, value->text, value->length);
    memcpy(&word, &value->number, 8);
    return mix(mix(seed ^ word) ^ value->extra ^ (uint64_t)value->kind << 16);
}

static size_t text_size(const Value *value)
{
    return value->kind == STRING ? value->length : 0;
}

/* How many bytes the white space at `at` takes, as `str.strip` sees it: 0 where there is none. */
static size_t space_at(Bytes at, Bytes end)
{
    if (at[0] < 0x80)
        return at[0] == ' ' || (at[0] >= 9 && at[0] <= 13) || (at[0] >= 28 && at[0] <= 31);
    if (end - at >= 2 && at[0] == 0xC2) return at[1] == 0x85 || at[1] == 0xA0 ? 2 : 0;
    if (end - at < 3 || at[0] < 0xE1 || at[0] > 0xE3) return 0;
    uint32_t point = (uint32_t)(at[0] & 15) << 12 | (uint32_t)(at[1] & 63) << 6 | (at[2] & 63);
    bool is_space = point == 0x1680 || (point >= 0x2000 && point <= 0x200A) || point == 0x2028
                    || point == 0x2029 || point == 0x202F || point == 0x205F || point == 0x3000;
    return is_space ? 3 : 0;
}

static Bytes skip_space(Bytes at, Bytes end)
{
    size_t space;
    while (at < end && (space = space_at(at, end)) > 0) at += space;
    return at;
}

/* Whether a literal from `start` to `at` is all there is, but for white space. */
static bool is_whole(Bytes start, Bytes at, Bytes end)
{
    return at - start <= LONGEST_LITERAL && skip_space(at, end) == end;
}

static bool is_digit(uint8_t byte)
{
    return byte >= '0' && byte <= '9';
}

static Bytes read_digits(Bytes at, Bytes end, uint64_t *digits, bool *is_short)
{
    for (; at < end && is_digit(*at); at++) {
        *is_short &= *digits < UINT64_C(1000000000000000000);
        if (*is_short) *digits = *digits * 10 + (*at - '0');
    }
    return at;
}

/* The number that `text` says; NO where it says none that 64 bits can hold. */
static int read_number(Bytes text, Bytes end, Value *value)
{
    static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                  1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    Bytes stop = end - text > LONGEST_LITERAL + 1 ? text + LONGEST_LITERAL + 1 : end;
    bool is_negative = *text == '-', is_short = true;
    uint64_t digits = 0;
    Bytes start = text + (*text == '-' || *text == '+');
    Bytes at = read_digits(start, stop, &digits, &is_short);
    ptrdiff_t whole = at - start, fraction = 0;
    if (whole >= 1 && whole <= 19 && is_whole(text, at, end)) {
        if (digits > (uint64_t)INT64_MAX + is_negative) return NO;
        *value = integer_of((int64_t)(is_negative ? -digits : digits), NUMBER);
        return YES;
    }
    if (at < stop && *at == '.') {
        start = at + 1;
        at = read_digits(start, stop, &digits, &is_short);
        fraction = at - start;
    }
    if (whole + fraction == 0) return NO;
    if (at < stop && (*at == 'e' || *at == 'E')) {
        at++;
        start = at += at < stop && (*at == '-' || *at == '+');
        while (at < stop && at < start + 3 && is_digit(*at)) at++;
        if (at == start) return NO;
        is_short = false;
    }
    if (!is_whole(text, at, end)) return NO;
    double number;
    if (is_short && digits >> 53 == 0 && fraction <= 15) {
        number = (double)digits / tens[fraction]; /* Both are exact, so it is rounded once. */
        number = is_negative ? -number : number;
    } else {
        char copy[LONGEST_LITERAL + 1] = {0};
        memcpy(copy, text, (size_t)(at - text));
        number = PyOS_string_to_double(copy, NULL, NULL);
        if (number == -1.0 && PyErr_Occurred()) return FAILED;
    }
    *value = number_of(number, NUMBER);
    return isfinite(number) ? YES : NO;
}

/* The timestamp that Python reads from `text`, or the text itself. */
static int read_moment(Matcher *self, Bytes text, size_t length, Value *value)
{
    PyObject *said = PyUnicode_DecodeUTF8((const char *)text, (Py_ssize_t)length, "replace");
    PyObject *instant = said == NULL ? NULL : PyObject_CallFunctionObjArgs(self->instant, said, NULL);
    Py_XDECREF(said);
    if (instant == NULL) return FAILED;
    *value = (Value){.text = (const char *)text, .length = (uint32_t)length, .kind = STRING};
    if (instant != Py_None) *value = integer_of(PyLong_AsLongLong(instant), TIMESTAMP);
    Py_DECREF(instant);
    return PyErr_Occurred() ? FAILED : YES;
}

/* `accord.core.model.values.infer` */
static int infer(Matcher *self, Bytes text, size_t length, Value *value)
{
    Bytes end = text + length, at = skip_space(text, end);
    int answer = NO;
    if (at < end && *at <= '9') {
        if (end - at >= 17 && at[4] == '-' && at[7] == '-' && at[13] == ':') {
            Bytes stop = at + 16;
            while (stop < end && space_at(stop, end) == 0) stop++;
            if (is_whole(at, stop, end)) return read_moment(self, text, length, value);
        }
        answer = read_number(at, end, value);
    } else if (end - at >= 4 && (*at == 't' || *at == 'f')) {
        bool is_true = memcmp(at, "true", 4) == 0;
        bool is_false = end - at >= 5 && memcmp(at, "false", 5) == 0;
        answer = (is_true || is_false) && is_whole(at, at + (is_true ? 4 : 5), end);
        *value = number_of(is_true, BOOLEAN);
    }
    if (answer == NO)
        *value = (Value){.text = (const char *)text, .length = (uint32_t)length, .kind = STRING};
    return answer == FAILED ? FAILED : YES;
}

/* The value that a Python object is; NO for None. A text is borrowed. */
static int value_of(Matcher *self, PyObject *object, Value *value)
{
    if (PyUnicode_Check(object)) {
        Py_ssize_t length;
        const char *text = PyUnicode_AsUTF8AndSize(object, &length);
        if (text == NULL || (uint64_t)length >= NONE)
            return fail(PyExc_OverflowError, "a text of more than 4 GB");
        *value = (Value){.text = text, .length = (uint32_t)length, .kind = STRING};
    } else if (PyFloat_Check(object)) {
        *value = number_of(PyFloat_AsDouble(object), NUMBER);
    } else if (PyBool_Check(object)) {
        *value = number_of(object == Py_True, BOOLEAN);
    } else if (object == Py_None) {
        return NO;
    } else {
        bool is_integer = PyLong_Check(object);
        PyObject *integer = is_integer ? Py_NewRef(object)
                                       : PyObject_CallFunctionObjArgs(self->instant, object, NULL);
        long long number = integer == NULL ? -1 : PyLong_AsLongLong(integer);
        Py_XDECREF(integer);
        if (number == -1 && PyErr_Occurred()) return FAILED;
        *value = integer_of(number, is_integer ? NUMBER : TIMESTAMP);
    }
    return YES;
}

/* ---- tables ---- */

static void *allocate(size_t size)
{
    void *made = PyMem_Calloc(1, size);
    if (made == NULL) PyErr_NoMemory();
    return made;
}

static int push(Numbers *numbers, uint32_t number)
{
    if (reserve(&numbers->items, numbers->count, &numbers->room, sizeof number) < 0) return FAILED;
    numbers->items[numbers->count++] = number;
    return 0;
}

static void table_put(Table *table, uint64_t hash, void *item)
{
    size_t at = hash & table->mask;
    while (table->slots[at].item != NULL) at = (at + 1) & table->mask;
    table->slots[at] = (Slot){hash, item};
    table->used++;
}

static int table_add(Table *table, uint64_t hash, void *item)
{
    size_t size = table->slots == NULL ? 0 : table->mask + 1;
    if ((table->used + 1) * 3 > size * 2) {
        size_t larger = size ? size * 2 : 16;
        Table grown = {allocate(larger * sizeof(Slot)), larger - 1, 0};
        if (grown.slots == NULL) return FAILED;
        for (size_t at = 0; at < size; at++)
            if (table->slots[at].item != NULL)
                table_put(&grown, table->slots[at].hash, table->slots[at].item);
        PyMem_Free(table->slots);
        *table = grown;
    }
    table_put(table, hash, item);
    return 0;
}

/* The next item with this hash, or NULL; `at` starts as the hash. */
static inline void *table_next(const Table *table, uint64_t hash, size_t *at)
{
    if (table->slots == NULL) return NULL;
    for (;;) {
        const Slot *slot = &table->slots[(*at)++ & table->mask];
        if (slot->item == NULL || slot->hash == hash) return slot->item;
    }
}

static void table_remove(Table *table, uint64_t hash, const void *item)
{
    size_t hole = hash & table->mask;
    while (table->slots[hole].item != item) hole = (hole + 1) & table->mask;
    for (size_t at = (hole + 1) & table->mask; table->slots[at].item != NULL;
         at = (at + 1) & table->mask) {
        size_t home = table->slots[at].hash & table->mask;
        if (((at - home) & table->mask) >= ((at - hole) & table->mask)) {
            table->slots[hole] = table->slots[at];
            hole = at;
        }
    }
    table->slots[hole].item = NULL;
    table->used--;
}

/* ---- names ---- */

static uint32_t find_name(const Matcher *self, const void *text, size_t length, uint64_t hash)
{
    void *item;
    size_t at = hash;
    while ((item = table_next(&self->names, hash, &at)) != NULL) {
        const Column *column = &self->columns[(uintptr_t)item - 1];
        if (column->length == length && memcmp(column->name, text, length) == 0)
            return (uint32_t)((uintptr_t)item - 1);
    }
    return NONE;
}

/* Hold the name of a new condition until `release_name`: its number, or NONE with an exception. */
static uint32_t hold_name(Matcher *self, PyObject *object)
{
    Value text = ANY;
    if (value_of(self, object, &text) < 0 || text.kind != STRING) {
        fail(PyExc_TypeError, "expected names");
        return NONE;
    }
    uint64_t hash = hash_bytes(self->seed, text.text, text.length);
    uint32_t id = find_name(self, text.text, text.length, hash);
    if (id == NONE) {
        size_t count = self->column_count;
        bool is_new = self->free_column == NONE;
        if (is_new && reserve(&self->columns, count, &self->column_room, sizeof(Column)) < 0)
            return NONE;
        id = is_new ? (uint32_t)count : self->free_column;
        char *name = allocate((size_t)text.length + 1);
        if (name == NULL || table_add(&self->names, hash, (void *)((uintptr_t)id + 1)) < 0) {
            PyMem_Free(name);
            return NONE;
        }
        self->column_count += is_new;
        if (!is_new) self->free_column = self->columns[id].first;
        memcpy(name, text.text, text.length);
        self->columns[id] = (Column){.name = name, .hash = hash, .length = text.length};
    }
    self->columns[id].references++;
    return id;
}

static void release_name(Matcher *self, uint32_t id)
{
    Column *column = &self->columns[id];
    if (--column->references) return;
    table_remove(&self->names, column->hash, (void *)((uintptr_t)id + 1));
    PyMem_Free(column->name);
    *column = (Column){.first = self->free_column};
    self->free_column = id;
}

static uint64_t bit_of(uint32_t name)
{
    return UINT64_C(1) << (name & 63);
}

/* ---- blocks ---- */

typedef struct { /* what it takes to make a block */
    Axis axis[MAX_AXES];
    Value bounds[MAX_BOUNDS];
} Draft;

/* The first names that `clauses` ask for become axes; gives how many. */
static uint32_t choose_axes(Axis *axes, Clause **clauses, uint32_t count)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < clauses[i]->count && found < MAX_AXES; j++) {
            uint32_t name = clauses[i]->conditions[j].name, at = 0;
            while (at < found && axes[at].name != name) at++;
            axes[at].name = name;
            found += at == found;
        }
    }
    return found;
}

static const Condition *condition_on(const Clause *clause, uint32_t name)
{
    for (uint32_t i = 0; i < clause->count; i++)
        if (clause->conditions[i].name == name) return &clause->conditions[i];
    return NULL;
}

/* Cut `axis` where kinds start, and at some bounds of `clauses`, evenly by their number. */
static void cut(Axis *axis, Clause **clauses, uint32_t count, Value *bounds)
{
    uint32_t found = 0, starts = 0, stride = count / MAX_SAMPLE + 1, most = count / 2, n = 0;
    most = most < 4 ? 4 : most > CELLS ? CELLS : most;
    for (uint32_t i = 0; i < count; i += stride) {
        const Condition *condition = condition_on(clauses[i], axis->name);
        for (uint32_t k = 0; condition != NULL && k < 2 * condition->count; k++) {
            const Range *range = &condition->ranges[k / 2];
            const Value *bound = k % 2 ? &range->high : &range->low;
            if (bound->kind == POINT || found == MAX_BOUNDS) continue;
            bounds[found++] = *bound;
            starts += is_start(bound);
        }
    }
    qsort(bounds, found, sizeof(Value), compare);
    uint32_t step = (found - starts + most - 1) / most;
    for (Value *bound = bounds; bound < bounds + found; bound++) {
        if (!is_start(bound) && n++ % step != step / 2) continue;
        if (text_size(bound) > LONGEST_CUT) bound->length = LONGEST_CUT; /* any value will do */
        if (axis->cuts == 0 || compare(&axis->cut[axis->cuts - 1], bound) != 0)
            axis->cut[axis->cuts++] = *bound;
    }
}

/* Note which cells of `axis` lie in `range`, and which in part only. */
static void mark_cells(const Axis *axis, const Range *range, uint8_t *cells, uint32_t *outside)
{
    bool is_point = range->high.kind == POINT;
    uint32_t first = count_below(axis->cut, axis->cuts, 1, &range->low, true);
    uint32_t last = is_point ? first : count_below(axis->cut, axis->cuts, 1, &range->high, false);
    bool is_first = first ? compare(&axis->cut[first - 1], &range->low) == 0
                          : range->low.kind == NUMBER && is_start(&range->low);
    bool is_last = last < axis->cuts && compare(&axis->cut[last], &range->high) == 0;
    for (uint32_t cell = first; cell <= last; cell++) {
        bool is_part = is_point || (cell == first && !is_first) || (cell == last && !is_last);
        cells[cell] = is_part ? CUT : YES;
        *outside += is_part && (cell == 0 || cell + 1 >= axis->cuts);
    }
}

/* Take in a clause, for which there is room. */
static void block_put(Block *block, Clause *clause)
{
    uint32_t slot = block->count++, word = slot / 64;
    uint64_t bit = UINT64_C(1) << slot % 64;
    clause->block = block;
    clause->slot = slot;
    block->clauses[slot] = clause;
    block->alive++;
    block->used[word] |= bit;
    block->unsure[word] |= clause->rest != NULL ? bit : 0;
    for (uint32_t i = 0; i < clause->count; i++) {
        const Condition *condition = &clause->conditions[i];
        const Axis *axis = block->axis, *end = axis + block->axes;
        while (axis < end && axis->name != condition->name) axis++;
        block->ranges++;
        if (axis == end) {
            block->unsure[word] |= bit;
            block->outside++;
            continue;
        }
        uint8_t cells[MAX_CUTS + 3] = {NO};
        for (uint32_t k = 0; k < condition->count; k++)
            mark_cells(axis, &condition->ranges[k], cells, &block->outside);
        cells[axis->cuts + 1] = condition->has_null ? YES : NO; /* absent */
        cells[axis->cuts + 2] = CUT;                            /* several values */
        uint64_t *row = block->rows + (size_t)axis->row * 2 * block->words + word;
        for (uint32_t cell = 0; cell < axis->cuts + 3; cell++, row += 2 * block->words) {
            row[0] |= cells[cell] == NO ? bit : 0;
            row[block->words] |= cells[cell] == CUT ? bit : 0;
        }
    }
}

/* A block of `clauses`, with room for as many again; nothing is changed where that fails. */
static Block *block_new(Clause **clauses, uint32_t count)
{
    Draft *draft = allocate(sizeof(Draft));
    if (draft == NULL) return NULL;
    uint32_t axes = choose_axes(draft->axis, clauses, count), rows = 1;
    size_t words = count >= MAX_BLOCK / 2 ? MAX_BLOCK / 64 : count / 32 + 1, text = 0;
    for (Axis *axis = draft->axis; axis < draft->axis + axes; axis++) {
        cut(axis, clauses, count, draft->bounds);
        axis->row = rows;
        rows += axis->cuts + 3;
        for (uint32_t i = 0; i < axis->cuts; i++) text += text_size(&axis->cut[i]);
    }
    size_t head = sizeof(Block) + axes * sizeof(Axis);
    size_t bits = rows * 2 * words * sizeof(uint64_t), slots = words * 64 * sizeof(Clause *);
    Block *block = allocate(head + LINE + bits + slots + text);
    if (block != NULL) {
        *block = (Block){.axes = axes, .words = (uint32_t)words, .built = count};
        char *at = (char *)block + head;
        at += -(uintptr_t)at % LINE; /* Rows that begin with cache lines are read faster. */
        block->rows = block->used = (uint64_t *)at;
        block->unsure = block->used + words;
        block->clauses = (Clause **)(at + bits);
        at += bits + slots;
        memcpy(block->axis, draft->axis, axes * sizeof(Axis));
        for (Axis *axis = block->axis; axis < block->axis + axes; axis++) {
            for (uint32_t i = 0; i < axis->cuts; i++) {
                if (axis->cut[i].kind != STRING) continue;
                memcpy(at, axis->cut[i].text, axis->cut[i].length);
                axis->cut[i].text = at;
                at += axis->cut[i].length;
            }
        }
        for (uint32_t i = 0; i < count; i++) block_put(block, clauses[i]);
    }
    PyMem_Free(draft);
    return block;
}

/* Cut the cells of the block at `place` anew, with `clause` if any, and without those it lost. */
static int block_renew(Block **place, Clause *clause)
{
    Block *old = *place, *fresh = NULL, *next = old == NULL ? NULL : old->next;
    uint32_t count = 0, most = old == NULL ? 0 : old->count;
    Clause **clauses = allocate(((size_t)most + 1) * sizeof(Clause *));
    if (clauses == NULL) return FAILED;
    for (uint32_t i = 0; i < most; i++)
        if (old->clauses[i] != NULL) clauses[count++] = old->clauses[i];
    if (clause != NULL) clauses[count++] = clause;
    if (count) fresh = block_new(clauses, count);
    PyMem_Free(clauses);
    if (count && fresh == NULL) return FAILED;
    if (fresh != NULL) fresh->next = next;
    *place = fresh != NULL ? fresh : next;
    PyMem_Free(old);
    return 0;
}

static int blocks_add(Block **first, Clause *clause)
{
    Block *block = *first;
    bool is_full = block == NULL || block->count == block->words * 64;
    if (block != NULL && is_full && block->count == MAX_BLOCK && block->alive > MAX_BLOCK / 4 * 3) {
        Block *fresh = block_new(&clause, 1);
        if (fresh == NULL) return FAILED;
        fresh->next = block;
        *first = fresh;
        return 0;
    }
    if (is_full
        || (block->outside > 64 && block->outside * UINT64_C(4) > block->ranges
            && block->count > block->built + block->built / 8 + 32))
        return block_renew(first, clause);
    block_put(block, clause);
    return 0;
}

static void blocks_remove(Block **place, Clause *clause)
{
    Block *block = clause->block;
    while (*place != block) place = &(*place)->next;
    block->clauses[clause->slot] = NULL;
    block->used[clause->slot / 64] &= ~(UINT64_C(1) << clause->slot % 64);
    block->alive--;
    if ((block->alive * 2 < block->count && block->count > 64) || block->alive == 0)
        if (block_renew(place, NULL) < 0) PyErr_Clear(); /* It stays as it is. */
}

/* ---- nodes ---- */

static uint64_t hash_child(const Matcher *self, const Node *parent, uint32_t name,
                           const Value *value)
{
    uint64_t hash = value->kind == POINT ? 0 : hash_value(self->seed, value);
    return mix(parent->hash ^ mix(hash + name));
}

static Node *find_child(const Matcher *self, const Node *parent, uint32_t name, const Value *value,
                        uint64_t hash)
{
    Node *node;
    size_t at = hash;
    while ((node = table_next(&self->children, hash, &at)) != NULL)
        if (node->parent == parent && node->name == name && compare(&node->value, value) == 0)
            break;
    return node;
}

/* A child for `value` of `name`; a root without parent. */
static Node *node_new(Matcher *self, Node *parent, uint32_t name, const Value *value, uint64_t hash)
{
    size_t length = text_size(value);
    Node *node = allocate(sizeof(Node) + length);
    if (node == NULL || (parent != NULL && table_add(&self->children, hash, node) < 0)) {
        PyMem_Free(node);
        return NULL;
    }
    *node = (Node){.parent = parent, .name = name, .value = *value, .hash = hash};
    if (length) node->value.text = memcpy(node->text, value->text, length);
    if (parent != NULL) {
        node->depth = parent->depth + 1;
        *(value->kind == POINT ? &parent->any_names : &parent->value_names) |= bit_of(name);
    }
    return node;
}

static void node_free(Node *node)
{
    for (Block *block = node->blocks, *next; block != NULL; block = next) {
        next = block->next;
        PyMem_Free(block);
    }
    PyMem_Free(node->listed);
    PyMem_Free(node);
}

static void prune(Matcher *self, Node *node)
{
    while (node->parent != NULL && node->size == 0) {
        Node *parent = node->parent;
        table_remove(&self->children, node->hash, node);
        node_free(node);
        node = parent;
    }
}

static bool is_settled(const Node *node, uint32_t name)
{
    while (node->parent != NULL && node->name != name) node = node->parent;
    return node->parent != NULL;
}

/* The child of `node` that `clause` goes to, made if there is none; NULL for the blocks. */
static int choose_child(Matcher *self, Node *node, const Clause *clause, Node **child)
{
    const Value *best = NULL;
    uint32_t best_name = NONE;
    uint64_t best_hash = 0;
    *child = NULL;
    if (node->depth == MAX_DEPTH) return 0;
    for (int is_any = 0; is_any <= node->names_vary && best == NULL; is_any++) {
        for (uint32_t i = 0; i < clause->count; i++) {
            const Condition *condition = &clause->conditions[i];
            bool is_point = condition->count == 1 && condition->ranges->high.kind == POINT;
            if (condition->has_null || !(is_any || is_point) || is_settled(node, condition->name))
                continue;
            const Value *value = is_any ? &ANY : &condition->ranges->low;
            uint64_t hash = hash_child(self, node, condition->name, value);
            Node *found = find_child(self, node, condition->name, value, hash);
            if (best == NULL || (*child && (found == NULL || found->size < (*child)->size))) {
                best = value;
                best_name = condition->name;
                best_hash = hash;
                *child = found;
            }
        }
    }
    if (best == NULL || *child != NULL) return 0;
    *child = node_new(self, node, best_name, best, best_hash);
    return *child == NULL ? FAILED : 0;
}

static int list_add(Node *node, Clause *clause)
{
    if (reserve(&node->listed, node->count, &node->room, sizeof(Listed)) < 0) return FAILED;
    clause->block = NULL;
    clause->slot = (uint32_t)node->count;
    node->listed[node->count++] = (Listed){clause->needs, clause};
    return 0;
}

static int divide(Matcher *self, Node *node);

/* Keep `clause` in `top` or below. */
static int insert(Matcher *self, Node *top, Clause *clause)
{
    Node *node = top, *child = top;
    int answer = 0;
    while (node->is_divided || node->count >= LISTED) {
        if (!node->is_divided) answer = divide(self, node);
        if (answer == 0) answer = choose_child(self, node, clause, &child);
        if (answer < 0 || child == NULL) break;
        node = child;
    }
    if (answer == 0)
        answer = child == NULL ? blocks_add(&node->blocks, clause) : list_add(node, clause);
    if (answer < 0) {
        prune(self, node);
        return FAILED;
    }
    clause->node = node;
    for (; node != top; node = node->parent) node->size++;
    top->size++;
    return 0;
}

/* Pass on what `node` lists; where that fails, some stay listed, which does no harm. */
static int divide(Matcher *self, Node *node)
{
    uint64_t names = 0;
    for (size_t i = 0; i < node->count; i++) names |= node->listed[i].needs;
    for (const Node *at = node; at->parent != NULL; at = at->parent) names &= ~bit_of(at->name);
    node->names_vary = __builtin_popcountll(names) > MANY_NAMES;
    node->is_divided = true;
    while (node->count) {
        Clause *clause = node->listed[--node->count].clause;
        node->size--;
        if (insert(self, node, clause) < 0) {
            node->size++;
            node->count++;
            return FAILED;
        }
    }
    PyMem_Free(node->listed);
    node->listed = NULL;
    node->room = 0;
    return 0;
}

/* ---- predicates ---- */

/* Make a packed value one that points to its text; false where it has another form. */
static bool unpack(Value *value, const char *body, size_t size)
{
    if (value->kind != STRING) return value->kind <= POINT;
    if (value->offset > size || value->length > size - value->offset) return false;
    value->text = body + value->offset;
    return true;
}

/* Read conditions from their names, their heads (how many ranges, twice, and 1 for null), and a
   body of all ranges and then the texts. */
static int read_conditions(Matcher *self, Clause *clause, PyObject *names, Bytes heads, char *body,
                           size_t size)
{
    Range *ranges = (Range *)body;
    size_t left = size / sizeof(Range);
    for (Py_ssize_t i = 0; i < PyTuple_Size(names); i++) {
        Condition *condition = &clause->conditions[i];
        uint32_t head;
        memcpy(&head, heads + 4 * i, 4);
        condition->name = hold_name(self, PyTuple_GetItem(names, i));
        if (condition->name == NONE) return FAILED;
        clause->count++;
        condition->ranges = ranges;
        condition->count = head >> 1;
        condition->has_null = head & 1;
        if (head >> 1 > left) return fail(PyExc_ValueError, "fewer ranges than promised");
        left -= head >> 1;
        for (; ranges < condition->ranges + condition->count; ranges++)
            if (!unpack(&ranges->low, body, size) || !unpack(&ranges->high, body, size))
                return fail(PyExc_ValueError, "not a range");
        clause->needs |= head & 1 ? 0 : bit_of(condition->name);
    }
    return 0;
}

static void clause_free(Matcher *self, Clause *clause)
{
    for (uint32_t i = 0; i < clause->count; i++) release_name(self, clause->conditions[i].name);
    PyObject *rest = clause->rest;
    PyMem_Free(clause);
    Py_XDECREF(rest);
}

static Clause *clause_new(Matcher *self, PyObject *term)
{
    PyObject *names, *rest;
    const char *heads, *packed;
    Py_ssize_t heads_size, size;
    unsigned int weight;
    if (!PyArg_ParseTuple(term, "O!y#y#OI", &PyTuple_Type, &names, &heads, &heads_size, &packed,
                          &size, &rest, &weight))
        return NULL;
    if (heads_size != 4 * PyTuple_Size(names) || heads_size > UINT16_MAX) {
        fail(PyExc_ValueError, "not a head for each name, or too many");
        return NULL;
    }
    size_t fixed = sizeof(Clause) + (size_t)PyTuple_Size(names) * sizeof(Condition);
    Clause *clause = allocate(fixed + (size_t)size);
    if (clause == NULL) return NULL;
    char *body = (char *)clause + fixed;
    if (size) memcpy(body, packed, (size_t)size);
    clause->rest = rest == Py_None ? NULL : Py_NewRef(rest);
    clause->weight = weight;
    if (read_conditions(self, clause, names, (Bytes)heads, body, (size_t)size) == 0) return clause;
    clause_free(self, clause);
    return NULL;
}

static void take_out(Matcher *self, Clause *clause)
{
    Node *node = clause->node;
    if (clause->block != NULL) {
        blocks_remove(&node->blocks, clause);
    } else {
        node->listed[clause->slot] = node->listed[--node->count];
        node->listed[clause->slot].clause->slot = clause->slot;
    }
    for (Node *above = node; above != NULL; above = above->parent) above->size--;
    prune(self, node);
}

/* Python may run once objects are released, so nothing refers to them any more by then. */
static void predicate_free(Matcher *self, uint32_t number)
{
    Predicate old = self->predicates[number];
    for (Clause *clause = old.clauses; clause != NULL; clause = clause->next)
        take_out(self, clause);
    self->predicates[number] = (Predicate){.event = self->free_predicate};
    self->free_predicate = number;
    for (Clause *clause = old.clauses, *next; clause != NULL; clause = next) {
        next = clause->next;
        clause_free(self, clause);
    }
    Py_DECREF(old.key);
}

/* The number of a new predicate, or NONE with an exception. */
static uint32_t predicate_new(Matcher *self, PyObject *key)
{
    uint32_t number = self->free_predicate;
    if (number != NONE) {
        self->free_predicate = (uint32_t)self->predicates[number].event;
    } else {
        size_t count = self->predicate_count;
        if (count >= NONE
            || reserve(&self->predicates, count, &self->predicate_room, sizeof(Predicate)) < 0) {
            PyErr_NoMemory();
            return NONE;
        }
        number = (uint32_t)self->predicate_count++;
    }
    self->predicates[number] = (Predicate){.key = Py_NewRef(key)};
    return number;
}

/* ---- matching ---- */

static bool admits(Matcher *self, const Condition *condition, const Column *column)
{
    const Value *value = self->values + column->first, *end = value + column->count;
    for (; value < end; value++) {
        self->work += (int64_t)(text_size(value) >> COST_SHIFT);
        uint32_t place = count_below(&condition->ranges->low, condition->count, 2, value, true);
        if (place == 0) continue;
        const Range *range = &condition->ranges[place - 1];
        if (range->high.kind == POINT ? compare(value, &range->low) == 0
                                      : compare(value, &range->high) < 0)
            return true;
    }
    return false;
}

/* What Python says of the rest of a clause, whose cost is known before. */
static int evaluate_rest(Matcher *self, const Clause *clause)
{
    self->work += (int64_t)((self->text_size * clause->weight) >> COST_SHIFT);
    if (self->work > self->limit) return CUT;
    if (self->attributes == NULL)
        self->attributes = PyObject_CallFunction(self->decode, "y#", (const char *)self->block,
                                                 (Py_ssize_t)self->block_size);
    if (self->attributes == NULL) return FAILED;
    PyObject *truth =
        PyObject_CallFunctionObjArgs(clause->rest, self->attributes, self->document, NULL);
    if (truth == NULL) return FAILED;
    Py_DECREF(truth); /* True is never freed. */
    return truth == Py_True ? YES : NO;
}

static int note(Matcher *self, uint32_t predicate)
{
    if (self->predicates[predicate].event == self->event) return 0;
    self->predicates[predicate].event = self->event;
    return push(&self->found, predicate);
}

static int test(Matcher *self, const Clause *clause)
{
    if (++self->work > self->limit) return CUT;
    for (uint32_t i = 0; i < clause->count; i++) {
        const Condition *condition = &clause->conditions[i];
        const Column *column = &self->columns[condition->name];
        bool is_absent = column->event != self->event;
        if (is_absent ? !condition->has_null : !admits(self, condition, column)) return NO;
    }
    int answer = clause->rest == NULL ? YES : evaluate_rest(self, clause);
    return answer == YES ? note(self, clause->predicate) : answer;
}

static uint32_t cell_of(const Matcher *self, const Axis *axis)
{
    const Column *column = &self->columns[axis->name];
    if (column->event != self->event) return axis->cuts + 1;
    if (column->count > 1) return axis->cuts + 2;
    return count_below(axis->cut, axis->cuts, 1, &self->values[column->first], true);
}

static int match_block(Matcher *self, const Block *block)
{
    uint64_t left[MAX_BLOCK / 64];
    const uint64_t *doubts[MAX_AXES];
    uint32_t words = (block->count + 63) / 64;
    if (++self->work > self->limit) return CUT;
    memcpy(left, block->used, words * sizeof(uint64_t));
    for (uint32_t i = 0; i < block->axes; i++) {
        size_t row = block->axis[i].row + cell_of(self, &block->axis[i]);
        const uint64_t *fails = block->rows + row * 2 * block->words;
        doubts[i] = fails + block->words;
        for (uint32_t word = 0; word < words; word += 8) __builtin_prefetch(fails + word);
    }
    for (uint32_t i = 0; i < block->axes; i++) {
        const uint64_t *fails = doubts[i] - block->words;
        for (uint32_t word = 0; word < words; word++) left[word] &= ~fails[word];
    }
    for (uint32_t word = 0; word < words; word++) {
        if (left[word] == 0) continue;
        uint64_t doubtful = block->unsure[word];
        for (uint32_t i = 0; i < block->axes; i++) doubtful |= doubts[i][word];
        for (uint64_t bits = left[word]; bits; bits &= bits - 1) {
            const Clause *clause = block->clauses[word * 64 + (uint32_t)__builtin_ctzll(bits)];
            bool is_sure = !(doubtful & bits & -bits);
            int answer = is_sure ? note(self, clause->predicate) : test(self, clause);
            if (answer) return answer;
        }
    }
    return 0;
}

static int match_node(Matcher *self, const Node *node);

static int match_child(Matcher *self, const Node *node, uint32_t name, const Value *value)
{
    uint64_t hash = hash_child(self, node, name, value);
    const Node *child = find_child(self, node, name, value, hash);
    return child == NULL ? 0 : match_node(self, child);
}

static int match_node(Matcher *self, const Node *node)
{
    int answer = ++self->work > self->limit ? CUT : 0;
    for (size_t i = 0; i < node->count && !answer; i++)
        if ((node->listed[i].needs & ~self->present_bits) == 0)
            answer = test(self, node->listed[i].clause);
    if (!node->is_divided) return answer;
    for (size_t i = 0; i < self->present.count && !answer; i++) {
        uint32_t name = self->present.items[i];
        const Column *column = &self->columns[name];
        if (node->value_names & bit_of(name))
            for (uint32_t k = 0; k < column->count && !answer; k++)
                answer = match_child(self, node, name, &self->values[column->first + k]);
        if (node->any_names & bit_of(name) && !answer)
            answer = match_child(self, node, name, &ANY);
    }
    for (const Block *block = node->blocks; block != NULL && !answer; block = block->next)
        answer = match_block(self, block);
    return answer;
}

/* Match the event in hand; `*cut` says in which root that ended, if before the end. */
static int match_roots(Matcher *self, const Numbers *roots, size_t *cut)
{
    int answer = 0;
    for (size_t i = 0; i < roots->count && !answer; i++) {
        answer = match_node(self, self->roots[roots->items[i]]);
        *cut = i;
        answer = !answer && self->work > self->limit ? CUT : answer;
    }
    return answer;
}

/* ---- events ---- */

static void start_event(Matcher *self)
{
    self->event++;
    self->present.count = self->found.count = self->value_count = self->text_size = 0;
    self->present_bits = 0;
}

/* The column of a name that the event has now, or NULL with an exception. */
static Column *add_column(Matcher *self, uint32_t name)
{
    Column *column = &self->columns[name];
    if (push(&self->present, name) < 0) return NULL;
    self->present_bits |= bit_of(name);
    column->event = self->event;
    column->first = (uint32_t)self->value_count;
    column->count = 0;
    return column;
}

/* Room for a value of the column that was added last, or NULL with an exception. */
static Value *add_value(Matcher *self, Column *column)
{
    if (reserve(&self->values, self->value_count, &self->value_room, sizeof(Value)) < 0)
        return NULL;
    column->count++;
    return &self->values[self->value_count++];
}

/* Take the values of an event, of a tuple all of them; None is no value. */
static int load_values(Matcher *self, PyObject *values)
{
    PyObject *key, *object;
    Py_ssize_t at = 0;
    while (PyDict_Next(values, &at, &key, &object)) {
        Value text;
        if (value_of(self, key, &text) != YES || text.kind != STRING)
            return fail(PyExc_TypeError, "expected names and values");
        uint64_t hash = hash_bytes(self->seed, text.text, text.length);
        uint32_t name = find_name(self, text.text, text.length, hash);
        bool is_several = PyTuple_Check(object);
        if (name == NONE || (is_several ? PyTuple_Size(object) == 0 : object == Py_None)) continue;
        Column *column = add_column(self, name);
        if (column == NULL) return FAILED;
        for (Py_ssize_t i = 0; i < (is_several ? PyTuple_Size(object) : 1); i++) {
            PyObject *item = is_several ? PyTuple_GetItem(object, i) : object;
            Value *value = add_value(self, column);
            if (value == NULL || value_of(self, item, value) != YES)
                return fail(PyExc_TypeError, "expected names and values");
        }
        if (!is_several) self->text_size += text_size(&self->values[column->first]);
    }
    return 0;
}

typedef struct { /* a name as the last message had it, because the next mostly has the same */
    Bytes text;
    uint32_t length, name; /* where none asks for it: UNASKED, and what it means to a node */
} Known;

static uint32_t name_at(const Matcher *self, Known *known, Bytes text, uint32_t length)
{
    if (known->length != length || memcmp(known->text, text, length) != 0) {
        uint32_t meaning = meaning_of(text, length);
        uint32_t name = find_name(self, text, length, hash_bytes(self->seed, text, length));
        *known = (Known){text, length, name == NONE || meaning ? UNASKED + meaning : name};
    }
    return known->name;
}

/* Take the attributes that stand in a block of MQTT 5 properties. */
static int load_block(Matcher *self, Known *layout)
{
    Bytes at = self->block, end = at + self->block_size;
    uint32_t count = 0, seen = 0;
    for (Bytes next; at < end; at = next) {
        next = property_end(at, end);
        if (next == NULL || (*at == USER && count == MAX_PAIRS)) return UNREADABLE;
        if (*at != USER) continue;
        uint32_t length = two_bytes(at + 1);
        Known *known = &layout[count < LAYOUT ? count : LAYOUT];
        uint32_t name = name_at(self, known, at + 3, length);
        count++;
        if (name == UNASKED) continue;
        if (name > UNASKED) {
            uint32_t bit = 1u << (name - UNASKED);
            if (bit == 1u << METADATA || seen & bit) return UNREADABLE;
            seen |= bit;
        } else if (self->columns[name].event != self->event) {
            Column *column = add_column(self, name);
            Value *value = column == NULL ? NULL : add_value(self, column);
            if (value == NULL) return FAILED;
            Bytes text = at + 3 + length + 2;
            if (infer(self, text, (size_t)(next - text), value) == FAILED) return FAILED;
            self->text_size += text_size(value);
        }
    }
    return 0;
}

/* ---- the class ---- */

static int free_to_change(const Matcher *self)
{
    return self->is_busy ? fail(PyExc_RuntimeError, "the matcher is in use") : 0;
}

/* The root of this number, or NULL with an exception. */
static Node *find_root(const Matcher *self, unsigned long number)
{
    Node *root = number < self->root_count ? self->roots[number] : NULL;
    if (root == NULL) fail(PyExc_ValueError, "no such root");
    return root;
}

static int read_roots(const Matcher *self, PyObject *object, Numbers *roots)
{
    if (!PyTuple_Check(object)) return fail(PyExc_TypeError, "expected a tuple of roots");
    for (Py_ssize_t i = 0; i < PyTuple_Size(object); i++) {
        unsigned long root = PyLong_AsUnsignedLong(PyTuple_GetItem(object, i));
        if (PyErr_Occurred() || !find_root(self, root) || push(roots, (uint32_t)root) < 0)
            return FAILED;
    }
    return 0;
}

static PyObject *matcher_root(Matcher *self, PyObject *Py_UNUSED(unused))
{
    size_t number = 0;
    while (number < self->root_count && self->roots[number] != NULL) number++;
    if (reserve(&self->roots, number, &self->root_room, sizeof(Node *)) < 0) return NULL;
    Node *root = node_new(self, NULL, NONE, &ANY, mix(self->seed + number));
    if (root == NULL) return NULL;
    self->roots[number] = root;
    self->root_count += number == self->root_count;
    return PyLong_FromSize_t(number);
}

static PyObject *matcher_drop(Matcher *self, PyObject *object)
{
    unsigned long number = PyLong_AsUnsignedLong(object);
    if (PyErr_Occurred() || free_to_change(self) < 0) return NULL;
    Node *root = find_root(self, number);
    if (root == NULL) return NULL;
    if (root->size) return PyErr_Format(PyExc_ValueError, "the root is not empty");
    node_free(root);
    self->roots[number] = NULL;
    Py_RETURN_NONE;
}

static PyObject *matcher_add(Matcher *self, PyObject *arguments)
{
    unsigned int number;
    PyObject *key, *terms;
    if (!PyArg_ParseTuple(arguments, "IOO!", &number, &key, &PyTuple_Type, &terms)
        || free_to_change(self) < 0)
        return NULL;
    Node *root = find_root(self, number);
    uint32_t predicate = root == NULL ? NONE : predicate_new(self, key);
    if (predicate == NONE) return NULL;
    for (Py_ssize_t i = 0; i < PyTuple_Size(terms); i++) {
        Clause *clause = clause_new(self, PyTuple_GetItem(terms, i));
        if (clause == NULL || insert(self, root, clause) < 0) {
            if (clause != NULL) clause_free(self, clause);
            predicate_free(self, predicate);
            return NULL;
        }
        clause->predicate = predicate;
        clause->next = self->predicates[predicate].clauses;
        self->predicates[predicate].clauses = clause;
    }
    return PyLong_FromUnsignedLong(predicate);
}

static PyObject *matcher_remove(Matcher *self, PyObject *object)
{
    unsigned long number = PyLong_AsUnsignedLong(object);
    if (PyErr_Occurred() || free_to_change(self) < 0) return NULL;
    if (number >= self->predicate_count || self->predicates[number].key == NULL)
        return PyErr_Format(PyExc_ValueError, "no such predicate");
    predicate_free(self, (uint32_t)number);
    Py_RETURN_NONE;
}

static PyObject *take_found(const Matcher *self, bool is_list)
{
    Py_ssize_t count = (Py_ssize_t)self->found.count;
    PyObject *keys = is_list ? PyList_New(count) : PyTuple_New(count);
    int (*put)(PyObject *, Py_ssize_t, PyObject *) = is_list ? PyList_SetItem : PyTuple_SetItem;
    for (Py_ssize_t i = 0; keys != NULL && i < count; i++)
        put(keys, i, Py_NewRef(self->predicates[self->found.items[i]].key));
    return keys;
}

static PyObject *matcher_match(Matcher *self, PyObject *arguments)
{
    PyObject *object, *values, *document, *keys = NULL;
    Numbers roots = {0};
    size_t cut = 0;
    long long limit;
    if (!PyArg_ParseTuple(arguments, "OO!OL", &object, &PyDict_Type, &values, &document, &limit)
        || free_to_change(self) < 0)
        return NULL;
    if (read_roots(self, object, &roots) == 0) {
        self->is_busy = true;
        start_event(self);
        self->work = 0;
        self->limit = limit;
        self->attributes = values;
        self->document = document;
        int answer = load_values(self, values);
        if (answer == 0) answer = match_roots(self, &roots, &cut);
        if (answer >= 0) keys = take_found(self, true);
        if (answer != CUT) cut = roots.count;
        self->attributes = NULL;
        self->is_busy = false;
    }
    PyMem_Free(roots.items);
    return keys == NULL ? NULL : Py_BuildValue("NLn", keys, (long long)self->work, (Py_ssize_t)cut);
}

typedef struct { /* sets of found numbers, one after the other, with where each ends */
    Numbers numbers, ends;
    Table table;
    PyObject *list; /* begins with an empty tuple, which stands for UNDECIDED */
} Sets;

/* The position of what was found in `list`, to which it is added if it is new. */
static int intern(Matcher *self, Sets *sets, uint32_t *position)
{
    size_t size = self->found.count * sizeof(uint32_t);
    uint64_t hash = size ? hash_bytes(self->seed, self->found.items, size) : 0;
    size_t at = hash;
    void *item;
    while ((item = table_next(&sets->table, hash, &at)) != NULL) {
        *position = (uint32_t)(uintptr_t)item;
        uint32_t start = sets->ends.items[*position - 1], end = sets->ends.items[*position];
        if (end - start == self->found.count
            && (!size || !memcmp(sets->numbers.items + start, self->found.items, size)))
            return 0;
    }
    *position = (uint32_t)sets->ends.count;
    for (size_t i = 0; i < self->found.count; i++)
        if (push(&sets->numbers, self->found.items[i]) < 0) return FAILED;
    PyObject *keys = take_found(self, false);
    int answer = keys == NULL ? FAILED : PyList_Append(sets->list, keys);
    Py_XDECREF(keys);
    if (answer < 0 || push(&sets->ends, (uint32_t)sets->numbers.count) < 0) return FAILED;
    return table_add(&sets->table, hash, (void *)(uintptr_t)*position);
}

/* Match all messages: how many Python has to look at, or FAILED. */
static Py_ssize_t match_messages(Matcher *self, const Numbers *roots, const Py_buffer *data,
                                 const Py_buffer *spans, char *which, Sets *sets, int64_t limit)
{
    Known layout[LAYOUT + 1]; /* the last is for all names beyond */
    Py_ssize_t undecided = 0;
    memset(layout, 0xFF, sizeof layout);
    if (push(&sets->ends, 0) < 0) return FAILED;
    if (spans->len % 8) return fail(PyExc_ValueError, "a span beyond the data, or half of one");
    for (Py_ssize_t i = 0; i < spans->len / 8; i++) {
        uint32_t span[2], position = UNDECIDED;
        size_t cut;
        memcpy(span, (const char *)spans->buf + i * 8, 8);
        if (span[0] > span[1] || span[1] > (size_t)data->len)
            return fail(PyExc_ValueError, "a span beyond the data, or half of one");
        self->block = data->len ? (Bytes)data->buf + span[0] : (Bytes) "";
        self->block_size = span[1] - span[0];
        self->limit = limit > INT64_MAX - self->work ? INT64_MAX : self->work + limit;
        start_event(self);
        int answer = load_block(self, layout);
        if (answer == 0) answer = match_roots(self, roots, &cut);
        if (answer == 0) answer = intern(self, sets, &position);
        Py_CLEAR(self->attributes);
        if (answer < 0) return FAILED;
        memcpy(which + i * 4, &position, 4);
        undecided += position == UNDECIDED;
    }
    return undecided;
}

static PyObject *matcher_match_frames(Matcher *self, PyObject *arguments)
{
    PyObject *object, *which = NULL;
    Py_buffer data, spans;
    Numbers roots = {0};
    Sets sets = {.list = NULL};
    long long limit;
    Py_ssize_t undecided = FAILED;
    if (!PyArg_ParseTuple(arguments, "Oy*y*L", &object, &data, &spans, &limit)) return NULL;
    if (free_to_change(self) == 0 && read_roots(self, object, &roots) == 0
        && (sets.list = Py_BuildValue("[()]")) != NULL
        && (which = PyBytes_FromStringAndSize(NULL, spans.len / 8 * 4)) != NULL) {
        self->is_busy = true;
        self->work = 0;
        self->document = Py_None;
        char *numbers = PyBytes_AsString(which);
        undecided = match_messages(self, &roots, &data, &spans, numbers, &sets, limit);
        self->is_busy = false;
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&spans);
    PyMem_Free(roots.items);
    PyMem_Free(sets.numbers.items);
    PyMem_Free(sets.ends.items);
    PyMem_Free(sets.table.slots);
    if (undecided >= 0)
        return Py_BuildValue("NNLn", sets.list, which, (long long)self->work, undecided);
    Py_XDECREF(sets.list);
    Py_XDECREF(which);
    return NULL;
}

static PyObject *matcher_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"instant", "decode", NULL};
    PyObject *instant, *decode, *word;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OO", names, &instant, &decode)
        || (word = PyUnicode_FromString("accord")) == NULL)
        return NULL;
    Matcher *self = (Matcher *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (self != NULL) {
        self->seed = (uint64_t)PyObject_Hash(word);
        self->instant = Py_NewRef(instant);
        self->decode = Py_NewRef(decode);
        self->free_column = self->free_predicate = NONE;
    }
    Py_DECREF(word);
    return (PyObject *)self;
}

static int matcher_traverse(Matcher *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->instant);
    Py_VISIT(self->decode);
    for (size_t i = 0; i < self->predicate_count; i++) {
        Py_VISIT(self->predicates[i].key);
        for (Clause *clause = self->predicates[i].clauses; clause != NULL; clause = clause->next)
            Py_VISIT(clause->rest);
    }
    return 0;
}

static int matcher_clear(Matcher *self)
{
    for (size_t i = 0; i < self->predicate_count; i++)
        if (self->predicates[i].key != NULL) predicate_free(self, (uint32_t)i);
    Py_CLEAR(self->instant);
    Py_CLEAR(self->decode);
    return 0;
}

static void matcher_dealloc(Matcher *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    matcher_clear(self);
    for (size_t i = 0; i < self->root_count; i++)
        if (self->roots[i] != NULL) node_free(self->roots[i]);
    void *owned[] = {self->names.slots, self->children.slots, self->columns,     self->predicates,
                     self->roots,       self->present.items,  self->found.items, self->values};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) PyMem_Free(owned[i]);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef matcher_methods[] = {
    {"root", (PyCFunction)matcher_root, METH_NOARGS, "A root to add predicates to."},
    {"drop", (PyCFunction)matcher_drop, METH_O, "Give up a root that has no predicates."},
    {"add", (PyCFunction)matcher_add, METH_VARARGS, "The number of a new predicate."},
    {"remove", (PyCFunction)matcher_remove, METH_O, "Remove the predicate of this number."},
    {"match", (PyCFunction)matcher_match, METH_VARARGS, "Match the values of an event."},
    {"match_frames", (PyCFunction)matcher_match_frames, METH_VARARGS, "Match messages."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot matcher_slots[] = {
    {Py_tp_doc, "Predicates, to be matched against values or blocks of properties."},
    {Py_tp_new, matcher_new},
    {Py_tp_dealloc, matcher_dealloc},
    {Py_tp_traverse, matcher_traverse},
    {Py_tp_clear, matcher_clear},
    {Py_tp_methods, matcher_methods},
    {0, NULL},
};

static PyType_Spec matcher_spec = {
    .name = "accord.core.native._native.Matcher",
    .basicsize = sizeof(Matcher),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = matcher_slots,
};

int native_add_match(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &matcher_spec, NULL);
    int answer = type == NULL ? FAILED : PyModule_AddObjectRef(module, "Matcher", type);
    Py_XDECREF(type);
    return answer;
}
