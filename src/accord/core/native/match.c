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

   `accord.core.predicates.partition` does the same in Python. */
#include "native.h"
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

enum { NUMBER, STRING, BOOLEAN, TIMESTAMP, BEYOND, POINT };
enum { LISTED = 32, MAX_DEPTH = 16, MAX_AXES = 32, CELLS = 64, MAX_CUTS = CELLS + 5 };
enum { MAX_BLOCK = 8192, MAX_SAMPLE = 512, MAX_PROPERTIES = 256, LAYOUT = 32 };
enum { NO = 0, YES = 1, CUT = 2, UNREADABLE = 3, FAILED = -1 };
enum { UNDECIDED = 0 };
#define NONE UINT32_MAX
#define COST_SHIFT 6 /* a step of work is to go through 64 bytes of text */

typedef struct {
    union {
        double number;
        const char *text;
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

typedef struct {
    uint64_t hash;
    uint32_t id, references, length, tally;
    char text[];
} Name;

typedef struct { /* what an event has under a name */
    Value value;
    uint64_t event, hash; /* the hash is 0 until it is needed */
    uint32_t first, count; /* of several values: where they stand in `several` */
} Column;

typedef struct Node Node;
typedef struct Block Block;

typedef struct {
    PyObject *key, *rest;
    Node *node;
    Block *block;
    uint64_t needs, event; /* bits of the names it can't do without; the event it was found for */
    uint32_t number, first, next; /* the clauses of one predicate are a chain */
    uint32_t slot, weight, count;
    Condition conditions[];
} Clause;

typedef struct {
    uint64_t needs;
    Clause *clause;
} Listed;

struct Node {
    Node *parent;
    Listed *listed;
    Block *blocks;
    uint64_t hash, value_names, any_names; /* bits of the names that lead to children */
    uint32_t name, size, count, room, depth;
    bool is_any, is_divided, names_vary;
    Value value;
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
    char *text; /* of the cuts */
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
    PyObject *instant, *decode; /* a timestamp as integer; a block of properties as attributes */
    uint64_t seed;
    Table names, children;
    Name **by_id;
    Column *columns;
    uint32_t name_count, name_room, free_name;
    Clause **clauses;
    size_t clause_count, clause_room;
    Numbers free_clauses;
    Node **roots;
    uint32_t root_count;
    bool is_busy;
    /* The event in hand. */
    uint64_t event, present_bits;
    Numbers present, found;
    Value *several;
    size_t several_count, several_room, text_size;
    int64_t work, limit;
    PyObject *values, *document;
    const char *block;
    size_t block_size;
} Matcher;

/* ---- values ---- */

static Value start_of(uint8_t kind)
{
    if (kind == STRING) return (Value){.text = "", .kind = STRING};
    return (Value){.number = -INFINITY, .kind = kind};
}

static Value number_of(double number, uint8_t kind)
{
    return (Value){.number = number + 0.0, .kind = kind}; /* + 0.0: one zero only */
}

static Value integer_of(int64_t integer, uint8_t kind)
{
    uint64_t size = integer < 0 ? -(uint64_t)integer : (uint64_t)integer;
    int64_t step = 1;
    while (size >> 53) {
        size >>= 1;
        step *= 2;
    }
    int64_t base = integer & ~(step - 1); /* the largest multiple of step not above it */
    Value value = number_of((double)base, kind);
    value.extra = (uint16_t)(integer - base);
    return value;
}

static int compare(const Value *a, const Value *b)
{
    if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
    if (a->kind == STRING) {
        int order = memcmp(a->text, b->text, a->length < b->length ? a->length : b->length);
        return order ? order : (a->length > b->length) - (a->length < b->length);
    }
    if (a->number != b->number) return a->number < b->number ? -1 : 1;
    return (int)a->extra - (int)b->extra;
}

static int compare_sorted(const void *a, const void *b)
{
    return compare(a, b);
}

static inline uint64_t mix(uint64_t hash)
{
    hash ^= hash >> 32;
    hash *= UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 29;
}

static uint64_t hash_bytes(uint64_t hash, const char *bytes, size_t length)
{
    uint64_t word;
    hash = mix(hash ^ length);
    for (; length >= 8; bytes += 8, length -= 8) {
        memcpy(&word, bytes, 8);
        hash = mix(hash ^ word);
    }
    word = 0;
    memcpy(&word, bytes, length);
    return mix(hash ^ word);
}

static uint64_t hash_value(uint64_t seed, const Value *value)
{
    uint64_t word;
    if (value->kind == STRING) return hash_bytes(seed, value->text, value->length) | 1;
    memcpy(&word, &value->number, 8);
    return mix(mix(seed ^ word) ^ value->extra ^ (uint64_t)value->kind << 16) | 1;
}

static bool is_digit(char character)
{
    return character >= '0' && character <= '9';
}

/* How many bytes the white space at `text` takes, as `str.strip` sees it: 0 where there is none. */
static size_t space_at(const char *text, size_t length)
{
    const unsigned char *at = (const unsigned char *)text;
    if (at[0] < 0x80)
        return at[0] == ' ' || (at[0] >= 9 && at[0] <= 13) || (at[0] >= 28 && at[0] <= 31);
    if (length >= 2 && at[0] == 0xC2) return at[1] == 0x85 || at[1] == 0xA0 ? 2 : 0;
    if (length < 3 || at[0] < 0xE1 || at[0] > 0xE3) return 0;
    uint32_t point = (uint32_t)(at[0] & 15) << 12 | (uint32_t)(at[1] & 63) << 6 | (at[2] & 63);
    bool is_space = point == 0x1680 || (point >= 0x2000 && point <= 0x200A) || point == 0x2028
                    || point == 0x2029 || point == 0x202F || point == 0x205F || point == 0x3000;
    return is_space ? 3 : 0;
}

static void strip(const char **text, size_t *length)
{
    size_t space, back;
    while (*length && (space = space_at(*text, *length)) > 0) {
        *text += space;
        *length -= space;
    }
    while (*length) {
        for (back = 1; back < *length && back < 4 && ((*text)[*length - back] & 0xC0) == 0x80;)
            back++;
        if (space_at(*text + *length - back, back) != back) return;
        *length -= back;
    }
}

/* The number that `text` of at most 64 bytes says; NO where it says none that 64 bits can hold. */
static int read_number(const char *text, size_t length, Value *value)
{
    static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                  1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    const char *at = text, *end = text + length;
    bool is_negative = at < end && *at == '-', is_short = true;
    uint64_t digits = 0;
    int whole = 0, fraction = 0, exponent = 0;
    at += at < end && (*at == '-' || *at == '+');
    for (; at < end && is_digit(*at); at++, whole++) {
        is_short &= digits < UINT64_C(1000000000000000000);
        digits = is_short ? digits * 10 + (uint64_t)(*at - '0') : digits;
    }
    if (at == end && whole >= 1 && whole <= 19) {
        if (digits > (uint64_t)INT64_MAX + is_negative) return NO;
        *value = integer_of((int64_t)(is_negative ? -digits : digits), NUMBER);
        return YES;
    }
    if (at < end && *at == '.') {
        for (at++; at < end && is_digit(*at); at++, fraction++) {
            is_short &= digits < UINT64_C(1000000000000000000);
            digits = is_short ? digits * 10 + (uint64_t)(*at - '0') : digits;
        }
    }
    if (whole + fraction == 0) return NO;
    if (at < end && (*at == 'e' || *at == 'E')) {
        bool is_small = ++at < end && *at == '-';
        at += at < end && (*at == '-' || *at == '+');
        const char *start = at;
        for (; at < end && is_digit(*at) && at < start + 3; at++)
            exponent = exponent * 10 + (*at - '0');
        if (at == start) return NO;
        exponent = is_small ? -exponent : exponent;
    }
    if (at != end) return NO;
    exponent -= fraction;
    double number;
    if (is_short && digits >> 53 == 0 && exponent >= -15 && exponent <= 15) {
        /* Both are exact, so the result is rounded once. */
        number = exponent < 0 ? (double)digits / tens[-exponent] : (double)digits * tens[exponent];
        number = is_negative ? -number : number;
    } else {
        char copy[65];
        memcpy(copy, text, length);
        copy[length] = '\0';
        number = PyOS_string_to_double(copy, NULL, NULL);
        if (number == -1.0 && PyErr_Occurred()) return FAILED;
    }
    *value = number_of(number, NUMBER);
    return isfinite(number) ? YES : NO;
}

/* `accord.core.model.values.infer`; UNREADABLE where `text` may be a timestamp. */
static int infer(const char *text, size_t length, Value *value)
{
    const char *bare = text;
    size_t size = length;
    strip(&bare, &size);
    if (size && size <= 64 && bare[0] <= '9') {
        if (size >= 17 && bare[4] == '-' && bare[7] == '-' && bare[13] == ':') return UNREADABLE;
        int answer = read_number(bare, size, value);
        if (answer != NO) return answer;
    } else if ((size == 4 && !memcmp(bare, "true", 4))
               || (size == 5 && !memcmp(bare, "false", 5))) {
        *value = number_of(size == 4, BOOLEAN);
        return YES;
    }
    *value = (Value){.text = text, .length = (uint32_t)length, .kind = STRING};
    return YES;
}

/* The value that a Python object is; NO for None. A text is borrowed. */
static int value_of(Matcher *self, PyObject *object, Value *value)
{
    if (PyUnicode_Check(object)) {
        Py_ssize_t length;
        const char *text = PyUnicode_AsUTF8AndSize(object, &length);
        if (text != NULL && (uint64_t)length >= NONE)
            PyErr_SetString(PyExc_OverflowError, "a text of more than 4 GB");
        if (text == NULL || (uint64_t)length >= NONE) return FAILED;
        *value = (Value){.text = text, .length = (uint32_t)length, .kind = STRING};
        return YES;
    }
    if (PyFloat_Check(object)) {
        *value = number_of(PyFloat_AsDouble(object), NUMBER);
        return YES;
    }
    if (object == Py_True || object == Py_False) {
        *value = number_of(object == Py_True, BOOLEAN);
        return YES;
    }
    if (object == Py_None) return NO;
    bool is_integer = PyLong_Check(object);
    PyObject *integer = is_integer ? Py_NewRef(object)
                                   : PyObject_CallFunctionObjArgs(self->instant, object, NULL);
    if (integer == NULL) return FAILED;
    long long number = PyLong_AsLongLong(integer);
    Py_DECREF(integer);
    if (number == -1 && PyErr_Occurred()) return FAILED;
    *value = integer_of(number, is_integer ? NUMBER : TIMESTAMP);
    return YES;
}

/* ---- tables ---- */

static int no_value(void)
{
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "expected names, values and ranges");
    return FAILED;
}

static int no_memory(void)
{
    PyErr_NoMemory();
    return FAILED;
}

/* Room for one more item of `size` bytes in an array: 0, or FAILED. */
static int reserve(void *array, size_t count, size_t *room, size_t size)
{
    if (count < *room) return 0;
    size_t more = *room ? *room * 2 : 8;
    void *grown = more > SIZE_MAX / 2 / size ? NULL : PyMem_Realloc(*(void **)array, more * size);
    if (grown == NULL) return no_memory();
    *(void **)array = grown;
    *room = more;
    return 0;
}

static int push(Numbers *numbers, uint32_t number)
{
    if (reserve(&numbers->items, numbers->count, &numbers->room, sizeof(uint32_t)) < 0)
        return FAILED;
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
        Table grown = {PyMem_Calloc(larger, sizeof(Slot)), larger - 1, 0};
        if (grown.slots == NULL) return no_memory();
        for (size_t at = 0; at < size; at++) {
            if (table->slots[at].item != NULL)
                table_put(&grown, table->slots[at].hash, table->slots[at].item);
        }
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

static Name *find_name(const Matcher *self, const char *text, size_t length, uint64_t hash)
{
    size_t at = hash;
    Name *name;
    while ((name = table_next(&self->names, hash, &at)) != NULL) {
        if (name->length == length && memcmp(name->text, text, length) == 0) return name;
    }
    return NULL;
}

/* The name of a new condition, which holds it until `release_name`; NULL with an exception. */
static Name *hold_name(Matcher *self, PyObject *object)
{
    Value text;
    if (value_of(self, object, &text) != YES) return NULL;
    uint64_t hash = hash_bytes(self->seed, text.text, text.length);
    Name *name = find_name(self, text.text, text.length, hash);
    if (name != NULL) {
        name->references++;
        return name;
    }
    if (self->free_name == NONE && self->name_count == self->name_room) {
        uint32_t room = self->name_room ? self->name_room * 2 : 16;
        Name **by_id = PyMem_Realloc(self->by_id, room * sizeof(Name *));
        self->by_id = by_id == NULL ? self->by_id : by_id;
        Column *columns = PyMem_Realloc(self->columns, room * sizeof(Column));
        self->columns = columns == NULL ? self->columns : columns;
        if (by_id == NULL || columns == NULL) {
            no_memory();
            return NULL;
        }
        memset(columns + self->name_room, 0, (room - self->name_room) * sizeof(Column));
        self->name_room = room;
    }
    name = PyMem_Calloc(1, sizeof(Name) + text.length);
    if (name == NULL || table_add(&self->names, hash, name) < 0) {
        PyMem_Free(name);
        no_memory();
        return NULL;
    }
    memcpy(name->text, text.text, text.length);
    name->hash = hash;
    name->length = text.length;
    name->references = 1;
    if (self->free_name != NONE) {
        name->id = self->free_name;
        self->free_name = self->columns[name->id].first;
    } else {
        name->id = self->name_count++;
    }
    self->by_id[name->id] = name;
    return name;
}

static void release_name(Matcher *self, uint32_t id)
{
    Name *name = self->by_id[id];
    if (--name->references == 0) {
        table_remove(&self->names, name->hash, name);
        PyMem_Free(name);
        self->by_id[id] = NULL;
        self->columns[id] = (Column){.first = self->free_name};
        self->free_name = id;
    }
}

static uint64_t bit_of(uint32_t name)
{
    return UINT64_C(1) << (name & 63);
}

/* ---- blocks ---- */

static void block_free(Block *block)
{
    if (block != NULL) {
        PyMem_Free(block->clauses);
        PyMem_Free(block->rows);
        PyMem_Free(block->text);
        PyMem_Free(block);
    }
}

/* How many cuts are below `value`, or not above it. */
static uint32_t cuts_below(const Axis *axis, const Value *value, bool or_equal)
{
    uint32_t low = 0, high = axis->cuts;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (compare(&axis->cut[middle], value) < or_equal) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The first names that `clauses` ask for become the axes of `block`. */
static void choose_axes(Block *block, Clause **clauses, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < clauses[i]->count && block->axes < MAX_AXES; j++) {
            uint32_t name = clauses[i]->conditions[j].name, axis = 0;
            while (axis < block->axes && block->axis[axis].name != name) axis++;
            block->axis[axis].name = name;
            block->axes += axis == block->axes;
        }
    }
}

/* Cut `axis` at some bounds of `clauses`, evenly by their number; `bounds` has room for them. */
static void cut(Axis *axis, Clause **clauses, uint32_t count, Value *bounds)
{
    uint32_t found = 0, stride = count / MAX_SAMPLE + 1, most = count / 2;
    bool has_start[BEYOND + 1] = {false};
    most = most < 4 ? 4 : most > CELLS ? CELLS : most;
    for (uint32_t i = 0; i < count; i += stride) {
        for (uint32_t j = 0; j < clauses[i]->count; j++) {
            const Condition *condition = &clauses[i]->conditions[j];
            for (uint32_t k = 0; condition->name == axis->name && k < condition->count; k++) {
                const Range *range = &condition->ranges[k];
                for (const Value *bound = &range->low; bound <= &range->high; bound++) {
                    if (bound->kind == STRING ? bound->length == 0 : bound->number == -INFINITY) {
                        has_start[bound->kind] = true;
                    } else if (bound->kind != POINT && found < 4 * MAX_SAMPLE) {
                        bounds[found++] = *bound;
                    }
                }
            }
        }
    }
    for (uint32_t kind = 1; kind <= BEYOND; kind++) {
        if (has_start[kind]) axis->cut[axis->cuts++] = start_of((uint8_t)kind);
    }
    qsort(bounds, found, sizeof(Value), compare_sorted);
    uint32_t step = (found + most - 1) / most;
    for (uint32_t i = step / 2; i < found; i += step) {
        Value *bound = &bounds[i];
        if (bound->kind == STRING && bound->length > 64) {
            bound->length = 64; /* Any value will do as a cut. */
        }
        axis->cut[axis->cuts++] = *bound;
    }
    qsort(axis->cut, axis->cuts, sizeof(Value), compare_sorted);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < axis->cuts; i++) {
        if (kept == 0 || compare(&axis->cut[kept - 1], &axis->cut[i]) != 0)
            axis->cut[kept++] = axis->cut[i];
    }
    axis->cuts = kept;
}

/* Note which cells of `axis` lie in `range`, and which in part only. */
static void mark_cells(const Axis *axis, const Range *range, uint8_t *cells, uint32_t *outside)
{
    bool is_point = range->high.kind == POINT;
    uint32_t first = cuts_below(axis, &range->low, true);
    uint32_t last = is_point ? first : cuts_below(axis, &range->high, false);
    bool is_start = first ? compare(&axis->cut[first - 1], &range->low) == 0
                          : range->low.kind == NUMBER && range->low.number == -INFINITY;
    bool is_end = last < axis->cuts && compare(&axis->cut[last], &range->high) == 0;
    for (uint32_t cell = first; cell <= last; cell++) {
        bool is_part = is_point || (cell == first && !is_start) || (cell == last && !is_end);
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
    Block *block = PyMem_Calloc(1, sizeof(Block) + MAX_AXES * sizeof(Axis));
    Value *bounds = PyMem_Malloc(4 * MAX_SAMPLE * sizeof(Value));
    if (block == NULL || bounds == NULL) goto failed;
    choose_axes(block, clauses, count);
    size_t rows = 1, text = 1;
    for (Axis *axis = block->axis; axis < block->axis + block->axes; axis++) {
        cut(axis, clauses, count, bounds);
        axis->row = (uint32_t)rows;
        rows += axis->cuts + 3;
        for (uint32_t i = 0; i < axis->cuts; i++)
            text += axis->cut[i].kind == STRING ? axis->cut[i].length : 0;
    }
    PyMem_Free(bounds);
    bounds = NULL;
    block->words = count >= MAX_BLOCK / 2 ? MAX_BLOCK / 64 : count / 32 + 1;
    Block *fitting = PyMem_Realloc(block, sizeof(Block) + block->axes * sizeof(Axis));
    block = fitting == NULL ? block : fitting;
    block->clauses = PyMem_Calloc(block->words * 64, sizeof(Clause *));
    block->rows = PyMem_Calloc(rows * 2 * block->words, sizeof(uint64_t));
    block->text = PyMem_Malloc(text);
    if (block->clauses == NULL || block->rows == NULL || block->text == NULL) goto failed;
    block->used = block->rows;
    block->unsure = block->rows + block->words;
    text = 0;
    for (Axis *axis = block->axis; axis < block->axis + block->axes; axis++) {
        for (uint32_t i = 0; i < axis->cuts; i++) {
            if (axis->cut[i].kind == STRING) {
                memcpy(block->text + text, axis->cut[i].text, axis->cut[i].length);
                axis->cut[i].text = block->text + text;
                text += axis->cut[i].length;
            }
        }
    }
    for (uint32_t i = 0; i < count; i++) block_put(block, clauses[i]);
    block->built = count;
    return block;
failed:
    PyMem_Free(bounds);
    block_free(block);
    no_memory();
    return NULL;
}

/* Cut the cells of the block at `place` anew, with `clause` if any, and without those it lost. */
static int block_renew(Block **place, Clause *clause)
{
    Block *old = *place, *fresh = NULL;
    uint32_t count = 0, most = old == NULL ? 0 : old->count;
    Clause **clauses = PyMem_Malloc(((size_t)most + 1) * sizeof(Clause *));
    if (clauses == NULL) return no_memory();
    for (uint32_t i = 0; i < most; i++) {
        if (old->clauses[i] != NULL) clauses[count++] = old->clauses[i];
    }
    if (clause != NULL) clauses[count++] = clause;
    if (count) fresh = block_new(clauses, count);
    PyMem_Free(clauses);
    if (count && fresh == NULL) return FAILED;
    Block *next = old == NULL ? NULL : old->next;
    *place = fresh == NULL ? next : fresh;
    if (fresh != NULL) fresh->next = next;
    block_free(old);
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
            && block->count > block->built + block->built / 8 + 32)) {
        return block_renew(first, clause);
    }
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
    if ((block->alive * 2 < block->count && block->count > 64) || block->alive == 0) {
        if (block_renew(place, NULL) < 0) {
            PyErr_Clear(); /* It stays as it is. */
        }
    }
}

/* ---- nodes ---- */

static Node *find_child(const Matcher *self, const Node *parent, uint32_t name,
                        const Value *value, uint64_t hash)
{
    Node *node;
    size_t at = hash;
    while ((node = table_next(&self->children, hash, &at)) != NULL) {
        if (node->parent == parent && node->name == name && node->is_any == (value == NULL)
            && (value == NULL || compare(&node->value, value) == 0)) {
            return node;
        }
    }
    return NULL;
}

static inline uint64_t hash_child(const Node *parent, uint32_t name, uint64_t hash)
{
    return mix(parent->hash ^ mix(hash + name));
}

/* A child for `value` of `name`, or for any value where it is NULL; a root without parent. */
static Node *node_new(Matcher *self, Node *parent, uint32_t name, const Value *value, uint64_t hash)
{
    size_t length = value != NULL && value->kind == STRING ? value->length : 0;
    Node *node = PyMem_Calloc(1, sizeof(Node) + length);
    if (node == NULL || (parent != NULL && table_add(&self->children, hash, node) < 0)) {
        PyMem_Free(node);
        no_memory();
        return NULL;
    }
    node->parent = parent;
    node->name = name;
    node->hash = hash;
    node->is_any = value == NULL;
    if (value != NULL) {
        node->value = *value;
        if (value->kind == STRING) {
            memcpy(node->text, value->text, length);
            node->value.text = node->text;
        }
    }
    if (parent != NULL) {
        node->depth = parent->depth + 1;
        *(value == NULL ? &parent->any_names : &parent->value_names) |= bit_of(name);
    }
    return node;
}

static void node_free(Node *node)
{
    for (Block *block = node->blocks, *next; block != NULL; block = next) {
        next = block->next;
        block_free(block);
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
    for (; node->parent != NULL; node = node->parent) {
        if (node->name == name) return true;
    }
    return false;
}

/* The child of `node` that `clause` goes to, made if there is none; NULL for the blocks. */
static int choose_child(Matcher *self, Node *node, const Clause *clause, Node **child)
{
    const Condition *best = NULL;
    const Value *value = NULL;
    uint64_t best_hash = 0;
    *child = NULL;
    for (int is_any = 0; is_any <= node->names_vary && best == NULL; is_any++) {
        for (uint32_t i = 0; i < clause->count && node->depth < MAX_DEPTH; i++) {
            const Condition *condition = &clause->conditions[i];
            bool is_point = condition->count == 1 && condition->ranges->high.kind == POINT;
            if (condition->has_null || (!is_any && !is_point)
                || is_settled(node, condition->name)) {
                continue;
            }
            const Value *point = is_any ? NULL : &condition->ranges->low;
            uint64_t hash = is_any ? 0 : hash_value(self->seed, point);
            hash = hash_child(node, condition->name, hash);
            Node *found = find_child(self, node, condition->name, point, hash);
            if (best == NULL || (*child != NULL && (!found || found->size < (*child)->size))) {
                best = condition;
                value = point;
                best_hash = hash;
                *child = found;
            }
        }
    }
    if (best != NULL && *child == NULL) {
        *child = node_new(self, node, best->name, value, best_hash);
        return *child == NULL ? FAILED : 0;
    }
    return 0;
}

static int list_add(Node *node, Clause *clause)
{
    if (node->count == node->room) {
        uint32_t room = node->room ? node->room * 2 : 2;
        Listed *listed = PyMem_Realloc(node->listed, room * sizeof(Listed));
        if (listed == NULL) return no_memory();
        node->listed = listed;
        node->room = room;
    }
    clause->block = NULL;
    clause->slot = node->count;
    node->listed[node->count++] = (Listed){clause->needs, clause};
    return 0;
}

static int divide(Matcher *self, Node *node);

/* Keep `clause` in `top` or below. */
static int insert(Matcher *self, Node *top, Clause *clause)
{
    Node *node = top, *child;
    int answer = 0;
    for (;;) {
        if (!node->is_divided && node->count < LISTED) {
            answer = list_add(node, clause);
            break;
        }
        if ((!node->is_divided && divide(self, node) < 0)
            || choose_child(self, node, clause, &child) < 0) {
            answer = FAILED;
            break;
        }
        if (child == NULL) {
            answer = blocks_add(&node->blocks, clause);
            break;
        }
        node = child;
    }
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
    uint32_t distinct = 0;
    for (int is_counting = 1; is_counting >= 0; is_counting--) {
        for (uint32_t i = 0; i < node->count; i++) {
            const Clause *clause = node->listed[i].clause;
            for (uint32_t j = 0; j < clause->count; j++) {
                const Condition *condition = &clause->conditions[j];
                Name *name = self->by_id[condition->name];
                distinct += is_counting && !condition->has_null && name->tally == 0
                            && !is_settled(node, condition->name);
                name->tally = is_counting && (name->tally || !condition->has_null);
            }
        }
    }
    node->names_vary = distinct > MAX_AXES;
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

/* ---- clauses ---- */

static void clause_free(Matcher *self, Clause *clause)
{
    for (uint32_t i = 0; i < clause->count; i++) release_name(self, clause->conditions[i].name);
    PyObject *key = clause->key, *rest = clause->rest;
    PyMem_Free(clause);
    Py_XDECREF(key);
    Py_XDECREF(rest);
}

/* How many ranges and bytes of text the conditions take; FAILED where they have another form. */
static int measure(Matcher *self, PyObject *conditions, size_t *ranges, size_t *text)
{
    for (Py_ssize_t i = 0; i < PyTuple_Size(conditions); i++) {
        PyObject *name, *bounds;
        int has_null;
        if (!PyArg_ParseTuple(PyTuple_GetItem(conditions, i), "UpO!", &name, &has_null,
                              &PyTuple_Type, &bounds)) {
            return FAILED;
        }
        *ranges += (size_t)PyTuple_Size(bounds) / 3;
        for (Py_ssize_t j = 0; j < PyTuple_Size(bounds); j++) {
            Value value;
            PyObject *bound = PyTuple_GetItem(bounds, j);
            if (PyUnicode_Check(bound)) {
                if (value_of(self, bound, &value) < 0) return FAILED;
                *text += value.length;
            }
        }
    }
    if (PyTuple_Size(conditions) > UINT16_MAX || *ranges >= INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "too many conditions");
        return FAILED;
    }
    return 0;
}

/* The ranges that `bounds` say: a kind, a low and a high each, None for its ends, the same object
   for a single value. Those that meet become one. */
static int read_ranges(Matcher *self, PyObject *bounds, Range *ranges, char **text)
{
    int count = 0;
    for (Py_ssize_t i = 0; i + 2 < PyTuple_Size(bounds); i += 3) {
        PyObject *low = PyTuple_GetItem(bounds, i + 1), *high = PyTuple_GetItem(bounds, i + 2);
        unsigned long kind = PyLong_AsUnsignedLong(PyTuple_GetItem(bounds, i));
        Range range;
        int has_low = value_of(self, low, &range.low), has_high = value_of(self, high, &range.high);
        if (PyErr_Occurred() || kind > TIMESTAMP) return no_value();
        if (has_low && low == high) range.high = (Value){.kind = POINT};
        range.low = has_low ? range.low : start_of((uint8_t)kind);
        range.high = has_high ? range.high : start_of((uint8_t)(kind + 1));
        for (Value *bound = &range.low; bound <= &range.high; bound++) {
            if (bound->kind == STRING && bound->length) {
                memcpy(*text, bound->text, bound->length);
                bound->text = *text;
                *text += bound->length;
            }
        }
        if (count && !has_low && compare(&ranges[count - 1].high, &range.low) == 0) {
            ranges[count - 1].high = range.high;
        } else {
            ranges[count++] = range;
        }
    }
    return count;
}

static Clause *clause_new(Matcher *self, PyObject *key, PyObject *term)
{
    PyObject *conditions, *rest;
    unsigned int weight;
    size_t range_count = 0, text_size = 0;
    if (!PyArg_ParseTuple(term, "O!OI", &PyTuple_Type, &conditions, &rest, &weight)
        || measure(self, conditions, &range_count, &text_size) < 0) {
        return NULL;
    }
    size_t count = (size_t)PyTuple_Size(conditions);
    size_t fixed = sizeof(Clause) + count * sizeof(Condition);
    Clause *clause = PyMem_Calloc(1, fixed + range_count * sizeof(Range) + text_size);
    if (clause == NULL) {
        no_memory();
        return NULL;
    }
    Range *ranges = (Range *)((char *)clause + fixed);
    char *text = (char *)(ranges + range_count);
    clause->key = Py_NewRef(key);
    clause->rest = rest == Py_None ? NULL : Py_NewRef(rest);
    clause->weight = weight;
    clause->first = clause->next = NONE;
    for (size_t i = 0; i < count; i++) {
        PyObject *item = PyTuple_GetItem(conditions, (Py_ssize_t)i);
        Condition *condition = &clause->conditions[i];
        Name *name = hold_name(self, PyTuple_GetItem(item, 0));
        if (name == NULL) {
            clause_free(self, clause);
            return NULL;
        }
        clause->count++;
        condition->name = name->id;
        condition->has_null = PyObject_IsTrue(PyTuple_GetItem(item, 1)) > 0;
        condition->ranges = ranges;
        int found = read_ranges(self, PyTuple_GetItem(item, 2), ranges, &text);
        if (found < 0) {
            clause_free(self, clause);
            return NULL;
        }
        condition->count = (uint32_t)found & INT32_MAX;
        ranges += found;
        clause->needs |= condition->has_null ? 0 : bit_of(name->id);
    }
    return clause;
}

/* ---- matching ---- */

static bool admits(Matcher *self, const Condition *condition, const Column *column)
{
    const Value *values = column->count ? self->several + column->first : &column->value;
    for (uint32_t i = 0; i < (column->count ? column->count : 1); i++) {
        const Value *value = &values[i];
        self->work += value->kind == STRING ? value->length >> COST_SHIFT : 0;
        uint32_t low = 0, high = condition->count;
        while (low < high) {
            uint32_t middle = (low + high) / 2;
            if (compare(&condition->ranges[middle].low, value) <= 0)
                low = middle + 1;
            else
                high = middle;
        }
        const Range *range = condition->ranges + low - 1;
        if (low && (range->high.kind == POINT ? compare(value, &range->low) == 0
                                              : compare(value, &range->high) < 0))
            return true;
    }
    return false;
}

/* What Python says of the rest of a clause, whose cost is known before. */
static int evaluate_rest(Matcher *self, const Clause *clause)
{
    self->work += (int64_t)((self->text_size * clause->weight) >> COST_SHIFT);
    if (self->work > self->limit) return CUT;
    if (self->values == NULL) {
        self->values = PyObject_CallFunction(self->decode, "y#", self->block,
                                             (Py_ssize_t)self->block_size);
        if (self->values == NULL) return FAILED;
    }
    PyObject *truth =
        PyObject_CallFunctionObjArgs(clause->rest, self->values, self->document, NULL);
    if (truth == NULL) return FAILED;
    Py_DECREF(truth); /* True is never freed. */
    return truth == Py_True ? YES : NO;
}

static int note(Matcher *self, const Clause *clause)
{
    Clause *first = self->clauses[clause->first];
    if (first->event == self->event) return 0;
    first->event = self->event;
    return push(&self->found, clause->first);
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
    return answer == YES ? note(self, clause) : answer;
}

static int match_block(Matcher *self, const Block *block)
{
    uint64_t left[MAX_BLOCK / 64];
    const uint64_t *doubts[MAX_AXES];
    uint32_t words = (block->count + 63) / 64;
    if (++self->work > self->limit) return CUT;
    memcpy(left, block->used, words * sizeof(uint64_t));
    for (uint32_t i = 0; i < block->axes; i++) {
        const Axis *axis = &block->axis[i];
        const Column *column = &self->columns[axis->name];
        uint32_t cell = column->event != self->event ? axis->cuts + 1
                        : column->count              ? axis->cuts + 2
                                                     : cuts_below(axis, &column->value, true);
        const uint64_t *fails = block->rows + (size_t)(axis->row + cell) * 2 * block->words;
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
            int answer = doubtful & bits & -bits ? test(self, clause) : note(self, clause);
            if (answer) return answer;
        }
    }
    return 0;
}

static int match_node(Matcher *self, const Node *node)
{
    int answer = ++self->work > self->limit ? CUT : 0;
    for (uint32_t i = 0; i < node->count && !answer; i++)
        if ((node->listed[i].needs & ~self->present_bits) == 0)
            answer = test(self, node->listed[i].clause);
    if (!node->is_divided) return answer;
    for (size_t i = 0; i < self->present.count && !answer; i++) {
        uint32_t name = self->present.items[i];
        Column *column = &self->columns[name];
        const Node *child;
        if (node->value_names & bit_of(name) && column->count == 0) {
            column->hash = column->hash ? column->hash : hash_value(self->seed, &column->value);
            uint64_t hash = hash_child(node, name, column->hash);
            child = find_child(self, node, name, &column->value, hash);
            answer = child == NULL ? 0 : match_node(self, child);
        }
        for (uint32_t k = 0; k < column->count && !answer; k++) {
            const Value *value = self->several + column->first + k;
            uint64_t hash = hash_child(node, name, hash_value(self->seed, value));
            child = find_child(self, node, name, value, hash);
            answer = child == NULL ? 0 : match_node(self, child);
        }
        if (node->any_names & bit_of(name) && !answer) {
            child = find_child(self, node, name, NULL, hash_child(node, name, 0));
            answer = child == NULL ? 0 : match_node(self, child);
        }
    }
    for (const Block *block = node->blocks; block != NULL && !answer; block = block->next)
        answer = match_block(self, block);
    return answer;
}

/* Match the event in hand in `roots`; `*cut` says where that ended, if before the end. */
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

static void start_event(Matcher *self)
{
    self->event++;
    self->present.count = self->found.count = self->several_count = self->text_size = 0;
    self->present_bits = 0;
}

/* The column of a name that the event has now, or NULL with an exception. */
static Column *add_column(Matcher *self, uint32_t name)
{
    Column *column = &self->columns[name];
    if (push(&self->present, name) < 0) return NULL;
    self->present_bits |= bit_of(name);
    column->event = self->event;
    column->hash = column->count = 0;
    return column;
}

/* Take the values of an event, of a tuple all of them; None is no value. */
static int load_values(Matcher *self, PyObject *values)
{
    PyObject *key, *object;
    Py_ssize_t at = 0;
    Value text;
    while (PyDict_Next(values, &at, &key, &object)) {
        if (value_of(self, key, &text) != YES || text.kind != STRING) return no_value();
        const Name *name = find_name(self, text.text, text.length,
                                     hash_bytes(self->seed, text.text, text.length));
        bool is_several = PyTuple_Check(object);
        bool is_absent = is_several ? PyTuple_Size(object) == 0 : object == Py_None;
        if (name == NULL || is_absent) continue;
        Column *column = add_column(self, name->id);
        if (column == NULL) return FAILED;
        if (!is_several) {
            if (value_of(self, object, &column->value) < 0) return FAILED;
            self->text_size += column->value.kind == STRING ? column->value.length : 0;
            continue;
        }
        column->first = (uint32_t)self->several_count;
        for (Py_ssize_t i = 0; i < PyTuple_Size(object); i++) {
            size_t count = self->several_count;
            if (reserve(&self->several, count, &self->several_room, sizeof(Value)) < 0)
                return FAILED;
            Value *value = &self->several[count];
            if (value_of(self, PyTuple_GetItem(object, i), value) != YES) return no_value();
            self->several_count++;
            column->count++;
        }
    }
    return 0;
}

enum { UNASKED = UINT32_MAX - 4, KEY, DEADLINE, METADATA };

typedef struct { /* names as the last message had them, because the next mostly has the same */
    const char *text[LAYOUT];
    uint32_t length[LAYOUT], name[LAYOUT];
} Layout;

static uint32_t name_at(const Matcher *self, Layout *layout, uint32_t place, const char *text,
                        uint32_t length)
{
    if (place < LAYOUT && layout->length[place] == length
        && memcmp(layout->text[place], text, length) == 0)
        return layout->name[place];
    uint32_t found = UNASKED;
    if (length == 3 && !memcmp(text, "key", 3))
        found = KEY;
    else if (length == 8 && !memcmp(text, "metadata", 8))
        found = METADATA;
    else if (length == 11 && !memcmp(text, "deadline-ms", 11))
        found = DEADLINE;
    else {
        const Name *name = find_name(self, text, length, hash_bytes(self->seed, text, length));
        found = name == NULL ? UNASKED : name->id;
    }
    if (place < LAYOUT) {
        layout->text[place] = text;
        layout->length[place] = length;
        layout->name[place] = found;
    }
    return found;
}

/* The length that stands in two bytes at `*at`, which moves behind them; or past `end`. */
static uint32_t read_length(const uint8_t **at, const uint8_t *end)
{
    if (end - *at < 2) {
        *at = end;
        return UINT16_MAX + 1;
    }
    *at += 2;
    return (uint32_t)(*at)[-2] << 8 | (*at)[-1];
}

/* Take the attributes that stand in a block of MQTT 5 properties. */
static int load_block(Matcher *self, Layout *layout, const uint8_t *at, const uint8_t *end)
{
    uint32_t count = 0, reserved = 0, length = 0;
    while (at < end) {
        switch (*at++) {
        case 0x26: {
            uint32_t name_length = read_length(&at, end);
            if (name_length > (size_t)(end - at)) return UNREADABLE;
            const char *text = (const char *)at;
            at += name_length;
            length = read_length(&at, end);
            if (length > (size_t)(end - at) || count == MAX_PROPERTIES) return UNREADABLE;
            uint32_t name = name_at(self, layout, count++, text, name_length);
            if (name > UNASKED) {
                if (name == METADATA || reserved & 1u << (name & 31)) return UNREADABLE;
                reserved |= 1u << (name & 31);
            } else if (name != UNASKED && self->columns[name].event != self->event) {
                Column *column = add_column(self, name);
                if (column == NULL) return FAILED;
                int answer = infer((const char *)at, length, &column->value);
                if (answer != YES) return answer;
                self->text_size += column->value.kind == STRING ? length : 0;
            }
            break;
        }
        case 0x01: length = 1; break;
        case 0x02: length = 4; break;
        case 0x23: length = 2; break;
        case 0x03: case 0x08: case 0x09: length = read_length(&at, end); break;
        case 0x0B:
            length = 1;
            while (length < 4 && length <= (size_t)(end - at) && at[length - 1] & 0x80) length++;
            break;
        default: return UNREADABLE;
        }
        if (length > (size_t)(end - at)) return UNREADABLE;
        at += length;
    }
    return 0;
}

/* ---- the class ---- */

static int free_to_change(const Matcher *self)
{
    if (self->is_busy) PyErr_SetString(PyExc_RuntimeError, "the matcher is in use");
    return self->is_busy ? FAILED : 0;
}

static int read_roots(const Matcher *self, PyObject *object, Numbers *roots)
{
    if (!PyTuple_Check(object)) {
        PyErr_SetString(PyExc_TypeError, "expected a tuple of roots");
        return FAILED;
    }
    for (Py_ssize_t i = 0; i < PyTuple_Size(object); i++) {
        unsigned long root = PyLong_AsUnsignedLong(PyTuple_GetItem(object, i));
        if (PyErr_Occurred()) return FAILED;
        if (root >= self->root_count || self->roots[root] == NULL) {
            PyErr_SetString(PyExc_ValueError, "no such root");
            return FAILED;
        }
        if (push(roots, (uint32_t)root) < 0) return FAILED;
    }
    return 0;
}

static PyObject *matcher_root(Matcher *self, PyObject *unused)
{
    (void)unused;
    uint32_t number = 0;
    while (number < self->root_count && self->roots[number] != NULL) number++;
    if (number == self->root_count) {
        Node **roots = PyMem_Realloc(self->roots, (number + 1) * sizeof(Node *));
        if (roots == NULL) return PyErr_NoMemory();
        self->roots = roots;
        roots[self->root_count++] = NULL;
    }
    self->roots[number] = node_new(self, NULL, NONE, NULL, mix(self->seed + number));
    return self->roots[number] == NULL ? NULL : PyLong_FromUnsignedLong(number);
}

static PyObject *matcher_drop(Matcher *self, PyObject *object)
{
    unsigned long root = PyLong_AsUnsignedLong(object);
    if (PyErr_Occurred() || free_to_change(self) < 0) return NULL;
    if (root >= self->root_count || self->roots[root] == NULL || self->roots[root]->size) {
        PyErr_SetString(PyExc_ValueError, "no such root, or not empty");
        return NULL;
    }
    node_free(self->roots[root]);
    self->roots[root] = NULL;
    Py_RETURN_NONE;
}

/* Take out a clause and those after it in its chain. */
static void remove_chain(Matcher *self, uint32_t number)
{
    while (number != NONE) {
        Clause *clause = self->clauses[number];
        Node *node = clause->node;
        uint32_t next = clause->next;
        if (clause->block != NULL) {
            blocks_remove(&node->blocks, clause);
        } else {
            node->listed[clause->slot] = node->listed[--node->count];
            node->listed[clause->slot].clause->slot = clause->slot;
        }
        for (Node *above = node; above != NULL; above = above->parent) above->size--;
        prune(self, node);
        self->clauses[number] = NULL;
        if (push(&self->free_clauses, number) < 0)
            PyErr_Clear(); /* The number is lost. */
        clause_free(self, clause);
        number = next;
    }
}

static int new_number(Matcher *self, uint32_t *number)
{
    if (self->free_clauses.count) {
        *number = self->free_clauses.items[--self->free_clauses.count];
        return 0;
    }
    if (self->clause_count == NONE
        || reserve(&self->clauses, self->clause_count, &self->clause_room, sizeof(Clause *)) < 0)
        return no_memory();
    *number = (uint32_t)self->clause_count++;
    self->clauses[*number] = NULL;
    return 0;
}

static PyObject *matcher_add(Matcher *self, PyObject *arguments)
{
    unsigned int root;
    PyObject *key, *terms;
    if (!PyArg_ParseTuple(arguments, "IOO!", &root, &key, &PyTuple_Type, &terms)
        || free_to_change(self) < 0)
        return NULL;
    if (root >= self->root_count || self->roots[root] == NULL)
        return PyErr_Format(PyExc_ValueError, "no such root");
    uint32_t first = NONE, last = NONE, number;
    for (Py_ssize_t i = 0; i < PyTuple_Size(terms); i++) {
        Clause *clause = clause_new(self, key, PyTuple_GetItem(terms, i));
        if (clause == NULL || new_number(self, &number) < 0
            || insert(self, self->roots[root], clause) < 0) {
            if (clause != NULL) clause_free(self, clause);
            remove_chain(self, first);
            return NULL;
        }
        self->clauses[number] = clause;
        clause->number = number;
        first = first == NONE ? number : first;
        clause->first = first;
        if (last != NONE) self->clauses[last]->next = number;
        last = number;
    }
    return PyLong_FromUnsignedLong(first);
}

static PyObject *matcher_remove(Matcher *self, PyObject *object)
{
    unsigned long number = PyLong_AsUnsignedLong(object);
    if (PyErr_Occurred() || free_to_change(self) < 0) return NULL;
    if (number != NONE) {
        if (number >= self->clause_count || self->clauses[number] == NULL
            || self->clauses[number]->first != number)
            return PyErr_Format(PyExc_ValueError, "no such predicate");
        remove_chain(self, (uint32_t)number);
    }
    Py_RETURN_NONE;
}

static PyObject *take_found(Matcher *self, bool is_list)
{
    Py_ssize_t count = (Py_ssize_t)self->found.count;
    PyObject *keys = is_list ? PyList_New(count) : PyTuple_New(count);
    for (Py_ssize_t i = 0; keys != NULL && i < count; i++) {
        PyObject *key = Py_NewRef(self->clauses[self->found.items[i]]->key);
        if (is_list)
            PyList_SetItem(keys, i, key);
        else
            PyTuple_SetItem(keys, i, key);
    }
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
        self->values = values;
        self->document = document;
        int answer = load_values(self, values);
        answer = answer < 0 ? answer : match_roots(self, &roots, &cut);
        keys = answer < 0 ? NULL : take_found(self, true);
        self->values = NULL;
        self->is_busy = false;
        cut = answer == CUT ? cut : roots.count;
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
    uint64_t hash = size ? hash_bytes(self->seed, (const char *)self->found.items, size) : 0;
    size_t at = hash;
    void *item;
    while ((item = table_next(&sets->table, hash, &at)) != NULL) {
        *position = (uint32_t)(uintptr_t)item;
        uint32_t start = *position > 1 ? sets->ends.items[*position - 2] : 0;
        if (sets->ends.items[*position - 1] - start == self->found.count
            && (!size || !memcmp(sets->numbers.items + start, self->found.items, size)))
            return 0;
    }
    *position = (uint32_t)sets->ends.count + 1;
    for (size_t i = 0; i < self->found.count; i++)
        if (push(&sets->numbers, self->found.items[i]) < 0) return FAILED;
    PyObject *keys = take_found(self, false);
    if (keys == NULL || PyList_Append(sets->list, keys) < 0) {
        Py_XDECREF(keys);
        return FAILED;
    }
    Py_DECREF(keys);
    if (sets->numbers.count >= NONE || push(&sets->ends, (uint32_t)sets->numbers.count) < 0)
        return no_memory();
    return table_add(&sets->table, hash, (void *)(uintptr_t)*position);
}

/* One message: its set's position, or UNDECIDED where Python has to look at it. */
static int match_message(Matcher *self, const Numbers *roots, Layout *layout, Sets *sets,
                         uint32_t *position)
{
    const uint8_t *start = (const uint8_t *)self->block;
    size_t cut;
    int64_t before = self->work, most = self->limit;
    start_event(self);
    self->limit = most > INT64_MAX - before ? INT64_MAX : before + most;
    int answer = load_block(self, layout, start, start + self->block_size);
    answer = answer ? answer : match_roots(self, roots, &cut);
    self->limit = most;
    Py_CLEAR(self->values);
    *position = UNDECIDED;
    return answer ? (answer < 0 ? FAILED : 0) : intern(self, sets, position);
}

/* All messages; returns how many Python has to look at, or FAILED. */
static Py_ssize_t match_messages(Matcher *self, const Numbers *roots, const Py_buffer *data,
                                 const Py_buffer *spans, char *which, Sets *sets)
{
    Layout layout = {.length = {0}};
    Py_ssize_t undecided = 0;
    memset(layout.length, 0xFF, sizeof layout.length);
    for (Py_ssize_t i = 0; i < spans->len / 8; i++) {
        uint32_t span[2], position;
        memcpy(span, (const char *)spans->buf + i * 8, 8);
        if (span[0] > span[1] || span[1] > (size_t)data->len || spans->len % 8) {
            PyErr_SetString(PyExc_ValueError, "a span beyond the data, or half of one");
            return FAILED;
        }
        self->block = data->len ? (const char *)data->buf + span[0] : "";
        self->block_size = span[1] - span[0];
        if (match_message(self, roots, &layout, sets, &position) < 0) return FAILED;
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
    Sets sets = {.list = Py_BuildValue("[()]")};
    long long limit;
    Py_ssize_t undecided = FAILED;
    if (sets.list == NULL
        || !PyArg_ParseTuple(arguments, "Oy*y*L", &object, &data, &spans, &limit)) {
        Py_XDECREF(sets.list);
        return NULL;
    }
    if (free_to_change(self) == 0 && read_roots(self, object, &roots) == 0
        && (which = PyBytes_FromStringAndSize(NULL, spans.len / 8 * 4)) != NULL) {
        self->is_busy = true;
        self->work = 0;
        self->limit = limit;
        self->document = Py_None;
        undecided = match_messages(self, &roots, &data, &spans, PyBytes_AsString(which), &sets);
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
    PyObject *instant, *decode;
    static char *names[] = {"instant", "decode", NULL};
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OO", names, &instant, &decode))
        return NULL;
    PyObject *word = PyUnicode_FromString("accord");
    Py_hash_t seed = word == NULL ? -1 : PyObject_Hash(word);
    Py_XDECREF(word);
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Matcher *self = word == NULL ? NULL : (Matcher *)alloc(type, 0);
    if (self != NULL) {
        self->seed = (uint64_t)seed;
        self->instant = Py_NewRef(instant);
        self->decode = Py_NewRef(decode);
        self->free_name = NONE;
    }
    return (PyObject *)self;
}

static int matcher_traverse(Matcher *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->instant);
    Py_VISIT(self->decode);
    for (size_t i = 0; i < self->clause_count; i++)
        if (self->clauses[i] != NULL) {
            Py_VISIT(self->clauses[i]->key);
            Py_VISIT(self->clauses[i]->rest);
        }
    return 0;
}

static int matcher_clear(Matcher *self)
{
    for (size_t i = 0; i < self->clause_count; i++)
        if (self->clauses[i] != NULL && self->clauses[i]->first == i)
            remove_chain(self, (uint32_t)i);
    Py_CLEAR(self->instant);
    Py_CLEAR(self->decode);
    return 0;
}

static void matcher_dealloc(Matcher *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    matcher_clear(self);
    for (uint32_t i = 0; i < self->root_count; i++)
        if (self->roots[i] != NULL) node_free(self->roots[i]);
    void *owned[] = {self->names.slots, self->children.slots, self->by_id, self->columns,
                     self->clauses, self->free_clauses.items, self->roots, self->present.items,
                     self->found.items, self->several};
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
