/* Frames of MQTT: scanning a read, and rewriting messages on their way to receivers.

   A *frame* is one PUBLISH, QoS 0 or 1. A frame is *clean* if Python need not look at it: its topic is known, it
   is neither retained nor a duplicate, and its properties are well-formed and of the kinds that are forwarded
   unchanged. Whatever is not clean, and whatever is wrong, ends a scan: Python takes that packet apart and says
   what is wrong with it. So nothing here raises for bad input from the network.

   Frames that were scanned once travel as bytes of whole frames, and are parsed again where they must change. */
#include "native.h"

#define NO_EXPIRY UINT32_MAX
#define MAX_PAIRS 256
#define MAX_NAME 256
#define CACHED_TOPICS 64 /* a power of two */

enum { FORMAT = 0x01, EXPIRY = 0x02, CONTENT_TYPE = 0x03, RESPONSE = 0x08, CORRELATION = 0x09, IDENTIFIER = 0x0b,
       ALIAS = 0x23, USER = 0x26 };

typedef const uint8_t *bytes_t;

/* A frame as found in a scan; offsets into the scanned data. */
typedef struct {
    uint32_t start, end;       /* of the whole frame */
    uint32_t topic;            /* of the topic's length */
    uint32_t topic_end;
    uint32_t block, payload;   /* of the properties without their length, and behind them */
    uint32_t expiry_s;
    uint32_t label;
    uint16_t packet_id;
    uint16_t alias;            /* that stands for the topic, 0 where the topic is there */
} scanned_t;

/* A frame in parts. */
typedef struct {
    uint8_t first;
    bytes_t topic, topic_end;  /* with the length in front */
    uint16_t packet_id;        /* 0 at QoS 0 */
    bytes_t block, block_end;
    bytes_t payload, end;
} parts_t;

/* How a frame is to be written. */
typedef struct {
    int v5;
    int qos;
    uint32_t waited_s;         /* taken off its expiry */
    int drops_alias;
    bytes_t more;              /* further properties */
    size_t more_size;
} form_t;

static unsigned
two_bytes(bytes_t at)
{
    return (unsigned)at[0] << 8 | at[1];
}

static uint32_t
four_bytes(bytes_t at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static uint8_t *
put_bytes(uint8_t *to, const void *from, size_t size)
{
    if (size) {
        memcpy(to, from, size);
    }
    return to + size;
}

static uint8_t *
put_integer(uint8_t *to, uint64_t value, int size)
{
    for (int shift = 8 * (size - 1); shift >= 0; shift -= 8) {
        *to++ = (uint8_t)(value >> shift);
    }
    return to;
}

static int
varint_size(size_t value)
{
    return value < 1 << 7 ? 1 : value < 1 << 14 ? 2 : value < 1 << 21 ? 3 : 4;
}

static uint8_t *
put_varint(uint8_t *to, size_t value)
{
    while (value >= 0x80) {
        *to++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *to++ = (uint8_t)value;
    return to;
}

/* Reads a variable byte integer. Gives what follows it, or NULL: with *is_short where more bytes are needed. */
static bytes_t
read_varint(bytes_t at, bytes_t end, uint32_t *value, int *is_short)
{
    uint32_t found = 0;
    for (int shift = 0; shift < 28; shift += 7) {
        if (at == end) {
            *is_short = 1;
            return NULL;
        }
        uint8_t byte = *at++;
        found |= (uint32_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *value = found;
            *is_short = 0;
            return byte == 0 && shift ? NULL : at;
        }
    }
    *is_short = 0;
    return NULL;
}

/* Whether it is UTF-8 as MQTT wants it: no surrogates, no overlong forms, no null character. */
static int
is_text(bytes_t at, size_t size)
{
    bytes_t end = at + size;
    while (end - at >= 8) { /* plain ASCII, eight at a time */
        uint64_t chunk;
        memcpy(&chunk, at, 8);
        uint64_t has_null = (chunk - 0x0101010101010101u) & ~chunk & 0x8080808080808080u;
        if ((chunk & 0x8080808080808080u) | has_null) {
            break;
        }
        at += 8;
    }
    while (at < end) {
        uint8_t lead = *at++;
        if (lead < 0x80) {
            if (lead == 0) {
                return 0;
            }
            continue;
        }
        int more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
        if (lead < 0xc2 || lead > 0xf4 || end - at < more) {
            return 0;
        }
        uint8_t next = *at;
        if ((lead == 0xe0 && next < 0xa0) || (lead == 0xed && next > 0x9f) || (lead == 0xf0 && next < 0x90) ||
            (lead == 0xf4 && next > 0x8f)) {
            return 0;
        }
        for (; more; more--) {
            if ((*at++ & 0xc0) != 0x80) {
                return 0;
            }
        }
    }
    return 1;
}

static int
is_same(bytes_t at, size_t size, const char *text)
{
    return size == strlen(text) && memcmp(at, text, size) == 0;
}

/* Whether an attribute may have this name; those that mean something to a node are looked at by Python. */
static int
is_attribute(bytes_t at, size_t size)
{
    if (size == 0 || size > MAX_NAME || !is_text(at, size)) {
        return 0;
    }
    if (at[0] == 'a') {
        return size < 7 || memcmp(at, "accord-", 7) != 0;
    }
    return !(is_same(at, size, "key") || is_same(at, size, "deadline-ms") || is_same(at, size, "metadata"));
}

/* The end of the property that begins at `at`, or NULL where it runs over `end` or is of no known kind. */
static bytes_t
property_end(bytes_t at, bytes_t end)
{
    uint8_t kind = *at++;
    if (kind == FORMAT) {
        return end - at < 1 ? NULL : at + 1;
    }
    if (kind == EXPIRY) {
        return end - at < 4 ? NULL : at + 4;
    }
    if (kind == ALIAS) {
        return end - at < 2 ? NULL : at + 2;
    }
    if (kind == IDENTIFIER) {
        uint32_t value;
        int is_short;
        return read_varint(at, end, &value, &is_short);
    }
    if (kind != USER && kind != CONTENT_TYPE && kind != RESPONSE && kind != CORRELATION) {
        return NULL;
    }
    for (int texts = kind == USER ? 2 : 1; texts; texts--) {
        if (end - at < 2 || end - at - 2 < (ptrdiff_t)two_bytes(at)) {
            return NULL;
        }
        at += 2 + two_bytes(at);
    }
    return at;
}

/* Notes expiry and alias of a clean block of properties; -1 if it is not clean. */
static int
check_block(bytes_t at, bytes_t end, scanned_t *frame)
{
    unsigned seen = 0;
    int pairs = 0;
    while (at < end) {
        bytes_t next = property_end(at, end);
        if (next == NULL) {
            return -1;
        }
        uint8_t kind = *at;
        if (kind == USER) {
            size_t name = two_bytes(at + 1);
            bytes_t value = at + 3 + name;
            if (++pairs > MAX_PAIRS || !is_attribute(at + 3, name) || !is_text(value + 2, two_bytes(value))) {
                return -1;
            }
        }
        else {
            unsigned bit = kind == FORMAT ? 1 : kind == EXPIRY ? 2 : kind == CONTENT_TYPE ? 4 : kind == ALIAS ? 8 : 0;
            if (!bit || seen & bit) {
                return -1;
            }
            seen |= bit;
            if (kind == EXPIRY) {
                frame->expiry_s = four_bytes(at + 1);
            }
            else if (kind == ALIAS) {
                frame->alias = (uint16_t)two_bytes(at + 1);
            }
            else if (kind == FORMAT ? at[1] > 1 : !is_text(at + 3, two_bytes(at + 1))) {
                return -1;
            }
        }
        at = next;
    }
    return seen & 8 && !frame->alias ? -1 : 0;
}

/* ---------------------------------------------------------------------------------------------- scanning */

typedef struct {
    PyObject_HEAD
    PyObject *data;
    PyObject *ways;            /* by label: what the topics table has for the topic */
    PyObject *topics;          /* by label: the topic with its length */
    scanned_t *frames;
    Py_ssize_t count;
    Py_ssize_t end;            /* of the last frame, in data */
    Py_ssize_t wanted;         /* bytes that the packet behind it has, 0 where that is not known or it is all there */
    uint32_t labels;
    int v5;
    int qos;
    int has_alias;
} Frames;

static PyTypeObject *frames_type;

/* The label of the topic from `at` on, a new one if need be; -1 where it is not known, -2 for an exception. */
static int64_t
label_of(Frames *self, PyObject *topics, PyObject *labels, PyObject *key)
{
    PyObject *way = PyDict_GetItemWithError(topics, key);
    if (way == NULL) {
        return PyErr_Occurred() ? -2 : -1;
    }
    PyObject *known = PyDict_GetItemWithError(labels, key);
    if (known != NULL) {
        return PyLong_AsLong(known);
    }
    if (PyErr_Occurred()) {
        return -2;
    }
    PyObject *label = PyLong_FromUnsignedLong(self->labels);
    if (label == NULL) {
        return -2;
    }
    int failed = PyDict_SetItem(labels, key, label) < 0 || PyList_Append(self->ways, way) < 0 ||
                 PyList_Append(self->topics, key) < 0;
    Py_DECREF(label);
    return failed ? -2 : (int64_t)self->labels++;
}

typedef struct {
    bytes_t at;
    size_t size;
    uint32_t label;
} cached_t;

static uint32_t
hash_of(bytes_t at, size_t size)
{
    uint64_t hash = size;
    for (; size >= 8; at += 8, size -= 8) {
        uint64_t chunk;
        memcpy(&chunk, at, 8);
        hash = (hash ^ chunk) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    for (; size; at++, size--) {
        hash = (hash ^ *at) * 0x9e3779b97f4a7c15u;
    }
    return (uint32_t)(hash >> 40);
}

/* Notes the frames from `start` on; -1 with an exception set. */
static int
scan_frames(Frames *self, bytes_t data, size_t size, size_t start, size_t limit, PyObject *topics, PyObject *aliases,
            PyObject *labels)
{
    cached_t cache[CACHED_TOPICS] = {{0}};
    size_t at = start, room = 0;
    uint8_t first = data[at];
    while (size - at >= 2 && data[at] == first) {
        uint32_t length;
        int is_short;
        bytes_t body = read_varint(data + at + 1, data + size, &length, &is_short);
        if (body == NULL) {
            break;
        }
        size_t end = (size_t)(body - data) + length;
        if (end - at > limit) {
            break;
        }
        if (end > size) {
            self->wanted = (Py_ssize_t)(end - at);
            break;
        }
        bytes_t stop = data + end;
        if (length < 2) {
            break;
        }
        size_t topic = 2 + two_bytes(body);
        size_t fixed = topic + (self->qos ? 2 : 0) + (self->v5 ? 1 : 0);
        if (length < fixed) {
            break;
        }
        bytes_t behind = body + topic + (self->qos ? 2 : 0);
        scanned_t frame = {.start = (uint32_t)at, .end = (uint32_t)end, .topic = (uint32_t)(body - data),
                           .topic_end = (uint32_t)((size_t)(body - data) + topic), .expiry_s = NO_EXPIRY};
        if (self->qos) {
            frame.packet_id = (uint16_t)two_bytes(body + topic);
            if (frame.packet_id == 0) {
                break;
            }
        }
        bytes_t payload = behind;
        if (self->v5) {
            uint32_t block;
            behind = read_varint(behind, stop, &block, &is_short);
            if (behind == NULL || (size_t)(stop - behind) < block || check_block(behind, behind + block, &frame) < 0) {
                break;
            }
            payload = behind + block;
        }
        frame.block = (uint32_t)(behind - data);
        frame.payload = (uint32_t)(payload - data);
        int64_t label = -1;
        if (topic == 2) {
            if (!frame.alias) {
                break;
            }
            PyObject *number = PyLong_FromLong(frame.alias);
            PyObject *key = number == NULL ? NULL : PyDict_GetItemWithError(aliases, number);
            Py_XDECREF(number);
            if (key != NULL) {
                label = label_of(self, topics, labels, key);
                self->has_alias = 1;
            }
            else if (PyErr_Occurred()) {
                return -1;
            }
        }
        else if (!frame.alias) { /* one that is set up is noted by Python */
            cached_t *cached = &cache[hash_of(body, topic) & (CACHED_TOPICS - 1)];
            if (cached->size == topic && memcmp(cached->at, body, topic) == 0) {
                label = cached->label;
            }
            else {
                PyObject *key = PyBytes_FromStringAndSize((const char *)body, (Py_ssize_t)topic);
                if (key == NULL) {
                    return -1;
                }
                label = label_of(self, topics, labels, key);
                Py_DECREF(key);
                if (label >= 0) {
                    *cached = (cached_t){body, topic, (uint32_t)label};
                }
            }
        }
        if (label < 0) {
            if (label == -2) {
                return -1;
            }
            break;
        }
        frame.label = (uint32_t)label;
        if ((size_t)self->count == room) {
            room = room ? 2 * room : 16;
            scanned_t *grown = PyMem_Realloc(self->frames, room * sizeof *grown);
            if (grown == NULL) {
                PyErr_NoMemory();
                return -1;
            }
            self->frames = grown;
        }
        self->frames[self->count++] = frame;
        at = end;
    }
    self->end = (Py_ssize_t)at;
    return 0;
}

PyDoc_STRVAR(scan_doc,
"scan(data, start, is_v5, limit, topics, aliases) -> Frames | None\n\n"
"The clean frames of one QoS from `start` on, up to the first packet that is none; None if that is the first.\n"
"`topics` has what is known by topic (with its length in front), `aliases` topics by alias; a packet has at most\n"
"`limit` bytes.");

static PyObject *
scan(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *data, *topics, *aliases;
    Py_ssize_t start, limit;
    int v5;
    if (!PyArg_ParseTuple(args, "SnpnO!O!:scan", &data, &start, &v5, &limit, &PyDict_Type, &topics, &PyDict_Type,
                          &aliases)) {
        return NULL;
    }
    bytes_t bytes = (bytes_t)PyBytes_AsString(data);
    Py_ssize_t size = PyBytes_Size(data);
    if (start < 0 || limit < 0) {
        PyErr_SetString(PyExc_ValueError, "scan: expected a start and a limit that are not negative");
        return NULL;
    }
    if (start >= size || size >= UINT32_MAX || (bytes[start] != 0x30 && bytes[start] != 0x32)) {
        Py_RETURN_NONE;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(frames_type, Py_tp_alloc);
    Frames *self = (Frames *)allocate(frames_type, 0);
    if (self == NULL) {
        return NULL;
    }
    Py_INCREF(data);
    self->data = data;
    self->v5 = v5;
    self->qos = bytes[start] >> 1 & 3;
    self->ways = PyList_New(0);
    self->topics = PyList_New(0);
    PyObject *labels = PyDict_New();
    int failed = self->ways == NULL || self->topics == NULL || labels == NULL ||
                 scan_frames(self, bytes, (size_t)size, (size_t)start, (size_t)limit, topics, aliases, labels) < 0;
    Py_XDECREF(labels);
    if (failed || self->count == 0) {
        Py_DECREF(self);
        if (failed) {
            return NULL;
        }
        Py_RETURN_NONE;
    }
    return (PyObject *)self;
}

static void
frames_dealloc(Frames *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyMem_Free(self->frames);
    Py_XDECREF(self->data);
    Py_XDECREF(self->ways);
    Py_XDECREF(self->topics);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* ------------------------------------------------------------------------------------------- writing frames */

static int
is_kept(bytes_t property, const form_t *form)
{
    return !(form->drops_alias && *property == ALIAS);
}

static size_t
block_size(const parts_t *parts, const form_t *form)
{
    size_t size = (size_t)(parts->block_end - parts->block) + form->more_size;
    return form->drops_alias ? size - 3 : size;
}

static size_t
body_size(const parts_t *parts, const form_t *form)
{
    size_t size = (size_t)(parts->topic_end - parts->topic) + (form->qos ? 2 : 0) + (size_t)(parts->end - parts->payload);
    if (form->v5) {
        size_t block = block_size(parts, form);
        size += varint_size(block) + block;
    }
    return size;
}

static size_t
frame_size(const parts_t *parts, const form_t *form)
{
    size_t body = body_size(parts, form);
    return 1 + varint_size(body) + body;
}

static uint8_t *
put_block(uint8_t *to, const parts_t *parts, const form_t *form)
{
    to = put_varint(to, block_size(parts, form));
    if (!form->drops_alias && !form->waited_s) {
        to = put_bytes(to, parts->block, (size_t)(parts->block_end - parts->block));
    }
    else {
        for (bytes_t at = parts->block, next; at < parts->block_end; at = next) {
            next = property_end(at, parts->block_end); /* well-formed: it was checked */
            if (!is_kept(at, form)) {
                continue;
            }
            to = put_bytes(to, at, (size_t)(next - at));
            if (*at == EXPIRY) {
                uint32_t expiry_s = four_bytes(at + 1);
                put_integer(to - 4, expiry_s > form->waited_s ? expiry_s - form->waited_s : 0, 4);
            }
        }
    }
    return put_bytes(to, form->more, form->more_size);
}

static uint8_t *
put_frame(uint8_t *to, const parts_t *parts, const form_t *form)
{
    *to++ = (uint8_t)(0x30 | form->qos << 1);
    to = put_varint(to, body_size(parts, form));
    to = put_bytes(to, parts->topic, (size_t)(parts->topic_end - parts->topic));
    if (form->qos) {
        to = put_integer(to, parts->packet_id, 2);
    }
    if (form->v5) {
        to = put_block(to, parts, form);
    }
    return put_bytes(to, parts->payload, (size_t)(parts->end - parts->payload));
}

/* Takes the frame at `at` apart; gives its end, or NULL with ValueError where it is no well-formed frame. */
static bytes_t
read_frame(bytes_t at, bytes_t end, int v5, parts_t *parts)
{
    uint32_t length, block = 0;
    int is_short;
    bytes_t body = end - at < 2 ? NULL : read_varint(at + 1, end, &length, &is_short);
    if (body == NULL || (size_t)(end - body) < length || (*at & 0xf0) != 0x30 || length < 2) {
        goto malformed;
    }
    end = body + length;
    parts->first = *at;
    parts->topic = body;
    size_t fixed = 2 + (size_t)two_bytes(body) + (*at & 6 ? 2 : 0);
    if (length < fixed) {
        goto malformed;
    }
    parts->topic_end = body + 2 + two_bytes(body);
    parts->packet_id = *at & 6 ? (uint16_t)two_bytes(parts->topic_end) : 0;
    parts->block = body + fixed;
    if (v5) {
        parts->block = read_varint(parts->block, end, &block, &is_short);
        if (parts->block == NULL || (size_t)(end - parts->block) < block) {
            goto malformed;
        }
    }
    parts->block_end = parts->payload = parts->block + block;
    parts->end = end;
    for (bytes_t each = parts->block; each < parts->block_end;) {
        each = property_end(each, parts->block_end);
        if (each == NULL) {
            goto malformed;
        }
    }
    return end;
malformed:
    PyErr_SetString(PyExc_ValueError, "expected whole PUBLISH packets");
    return NULL;
}

/* The end of a frame, of which only the length is looked at; NULL with ValueError. */
static bytes_t
skip_frame(bytes_t at, bytes_t end)
{
    uint32_t length;
    int is_short;
    bytes_t body = end - at < 2 ? NULL : read_varint(at + 1, end, &length, &is_short);
    if (body == NULL || (size_t)(end - body) < length) {
        PyErr_SetString(PyExc_ValueError, "expected whole packets");
        return NULL;
    }
    return body + length;
}

static PyObject *
new_bytes(size_t size, uint8_t **start)
{
    PyObject *made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (made != NULL) {
        *start = (uint8_t *)PyBytes_AsString(made);
    }
    return made;
}

static void
parts_of(const Frames *self, const scanned_t *frame, bytes_t data, parts_t *parts)
{
    *parts = (parts_t){.first = data[frame->start], .topic = data + frame->topic, .topic_end = data + frame->topic_end,
                       .packet_id = frame->packet_id, .block = data + frame->block, .block_end = data + frame->payload,
                       .payload = data + frame->payload, .end = data + frame->end};
    if (frame->alias) {
        PyObject *topic = PyList_GetItem(self->topics, frame->label);
        parts->topic = (bytes_t)PyBytes_AsString(topic);
        parts->topic_end = parts->topic + PyBytes_Size(topic);
    }
}

PyDoc_STRVAR(take_doc,
"take(parts) -> tuple[bytes, bytes, int]\n\n"
"The frames of the labels whose byte in `parts` is not 0 (labels beyond it have 0), in their order, with topics for\n"
"aliases; for each its byte; and the least expiry among them in seconds, -1 where none has one.");

static PyObject *
frames_take(Frames *self, PyObject *argument)
{
    char *wanted;
    Py_ssize_t labels;
    if (PyBytes_AsStringAndSize(argument, &wanted, &labels) < 0) {
        return NULL;
    }
    bytes_t data = (bytes_t)PyBytes_AsString(self->data);
    size_t size = 0, count = 0;
    uint32_t expiry_s = NO_EXPIRY;
    parts_t parts;
    form_t form = {.v5 = self->v5, .qos = self->qos, .drops_alias = 1};
    for (Py_ssize_t n = 0; n < self->count; n++) {
        const scanned_t *frame = &self->frames[n];
        if (frame->label >= (size_t)labels || !wanted[frame->label]) {
            continue;
        }
        count++;
        if (frame->expiry_s < expiry_s) {
            expiry_s = frame->expiry_s;
        }
        if (frame->alias) {
            parts_of(self, frame, data, &parts);
            size += frame_size(&parts, &form);
        }
        else {
            size += frame->end - frame->start;
        }
    }
    uint8_t *to = NULL, *part = NULL;
    PyObject *taken = new_bytes(size, &to);
    PyObject *marks = new_bytes(count, &part);
    if (taken == NULL || marks == NULL) {
        Py_XDECREF(taken);
        Py_XDECREF(marks);
        return NULL;
    }
    if (count == (size_t)self->count && !self->has_alias) {
        put_bytes(to, data + self->frames[0].start, size);
        for (Py_ssize_t n = 0; n < self->count; n++) {
            *part++ = (uint8_t)wanted[self->frames[n].label];
        }
    }
    else {
        for (Py_ssize_t n = 0; n < self->count; n++) {
            const scanned_t *frame = &self->frames[n];
            if (frame->label >= (size_t)labels || !wanted[frame->label]) {
                continue;
            }
            *part++ = (uint8_t)wanted[frame->label];
            if (frame->alias) {
                parts_of(self, frame, data, &parts);
                to = put_frame(to, &parts, &form);
            }
            else {
                to = put_bytes(to, data + frame->start, frame->end - frame->start);
            }
        }
    }
    return Py_BuildValue("NNL", taken, marks, expiry_s == NO_EXPIRY ? -1LL : (long long)expiry_s);
}

PyDoc_STRVAR(spans_doc,
"spans(label) -> bytes\n\n"
"Where the properties of the frames with this label are in `data`: pairs of native unsigned integers of 32 bits.");

static PyObject *
frames_spans(Frames *self, PyObject *argument)
{
    unsigned long label = PyLong_AsUnsignedLong(argument);
    if (PyErr_Occurred()) {
        return NULL;
    }
    uint8_t *to;
    size_t count = 0;
    for (Py_ssize_t n = 0; n < self->count; n++) {
        count += self->frames[n].label == label;
    }
    PyObject *spans = new_bytes(count * 8, &to);
    if (spans == NULL) {
        return NULL;
    }
    for (Py_ssize_t n = 0; n < self->count; n++) {
        const scanned_t *frame = &self->frames[n];
        if (frame->label == label) {
            uint32_t pair[2] = {frame->block, frame->payload};
            to = put_bytes(to, pair, sizeof pair);
        }
    }
    return spans;
}

PyDoc_STRVAR(relabel_doc,
"relabel(label, which, ways) -> int\n\n"
"Give the frames with `label` new labels: the first free one plus the number that `which` (native unsigned integers of\n"
"32 bits) has for each of them, in their order. `ways` are what the new labels stand for. Gives the first of them.");

static PyObject *
frames_relabel(Frames *self, PyObject *args)
{
    unsigned int label;
    Py_buffer which;
    PyObject *ways;
    if (!PyArg_ParseTuple(args, "Iy*O!:relabel", &label, &which, &PyList_Type, &ways)) {
        return NULL;
    }
    PyObject *result = NULL;
    size_t known = (size_t)which.len / 4, at = 0;
    Py_ssize_t added = PyList_Size(ways);
    uint32_t offset = self->labels;
    if (label >= self->labels || added > INT32_MAX - (Py_ssize_t)offset) {
        PyErr_SetString(PyExc_ValueError, "relabel: no such label");
        goto done;
    }
    for (Py_ssize_t n = 0; n < self->count; n++) { /* all of it is checked before anything changes */
        if (self->frames[n].label == label) {
            uint32_t step;
            if (at == known) {
                break;
            }
            memcpy(&step, (char *)which.buf + 4 * at++, 4);
            if (step >= (size_t)added) {
                at = known + 1;
                break;
            }
        }
    }
    Py_ssize_t total = 0;
    for (Py_ssize_t n = 0; n < self->count; n++) {
        total += self->frames[n].label == label;
    }
    if (at != known || (size_t)total != known) {
        PyErr_SetString(PyExc_ValueError, "relabel: expected a number below that of the ways for each frame");
        goto done;
    }
    PyObject *topic = PyList_GetItem(self->topics, label);
    for (Py_ssize_t n = 0; n < added; n++) {
        if (PyList_Append(self->ways, PyList_GetItem(ways, n)) < 0 || PyList_Append(self->topics, topic) < 0) {
            goto done;
        }
    }
    at = 0;
    for (Py_ssize_t n = 0; n < self->count; n++) {
        if (self->frames[n].label == label) {
            uint32_t step;
            memcpy(&step, (char *)which.buf + 4 * at++, 4);
            self->frames[n].label = offset + step;
        }
    }
    self->labels = offset + (uint32_t)added;
    result = PyLong_FromUnsignedLong(offset);
done:
    PyBuffer_Release(&which);
    return result;
}

PyDoc_STRVAR(sizes_doc, "sizes() -> list[tuple[int, int]]\n\nHow many frames each label has, and their bytes.");

static PyObject *
frames_sizes(Frames *self, PyObject *Py_UNUSED(ignored))
{
    uint64_t(*sums)[2] = PyMem_Calloc(self->labels, sizeof *sums);
    if (sums == NULL) {
        return PyErr_NoMemory();
    }
    for (Py_ssize_t n = 0; n < self->count; n++) {
        sums[self->frames[n].label][0]++;
        sums[self->frames[n].label][1] += self->frames[n].end - self->frames[n].start;
    }
    PyObject *sizes = PyList_New(0);
    for (uint32_t label = 0; sizes != NULL && label < self->labels; label++) {
        PyObject *pair = Py_BuildValue("KK", sums[label][0], sums[label][1]);
        if (pair == NULL || PyList_Append(sizes, pair) < 0) {
            Py_CLEAR(sizes);
        }
        Py_XDECREF(pair);
    }
    PyMem_Free(sums);
    return sizes;
}

PyDoc_STRVAR(places_doc,
"places(label) -> list[tuple[int, int]]\n\nWhere the frames with this label begin and end in `data`.");

static PyObject *
frames_places(Frames *self, PyObject *argument)
{
    unsigned long label = PyLong_AsUnsignedLong(argument);
    PyObject *places = PyErr_Occurred() ? NULL : PyList_New(0);
    for (Py_ssize_t n = 0; places != NULL && n < self->count; n++) {
        if (self->frames[n].label == label) {
            PyObject *place = Py_BuildValue("II", self->frames[n].start, self->frames[n].end);
            if (place == NULL || PyList_Append(places, place) < 0) {
                Py_CLEAR(places);
            }
            Py_XDECREF(place);
        }
    }
    return places;
}

PyDoc_STRVAR(acks_doc,
"acks(codes) -> bytes\n\n"
"The PUBACKs of QoS 1 frames whose label has a byte in `codes`, with that reason code; 255 stands for none.");

static PyObject *
frames_acks(Frames *self, PyObject *argument)
{
    char *codes;
    Py_ssize_t labels;
    if (PyBytes_AsStringAndSize(argument, &codes, &labels) < 0) {
        return NULL;
    }
    size_t size = 0;
    for (Py_ssize_t n = 0; n < self->count; n++) {
        uint32_t label = self->frames[n].label;
        if (label < (size_t)labels && (uint8_t)codes[label] != 255) {
            size += codes[label] && self->v5 ? 5 : 4;
        }
    }
    uint8_t *to;
    PyObject *acks = new_bytes(size, &to);
    for (Py_ssize_t n = 0; acks != NULL && n < self->count; n++) {
        uint32_t label = self->frames[n].label;
        if (label >= (size_t)labels || (uint8_t)codes[label] == 255) {
            continue;
        }
        int has_code = codes[label] && self->v5;
        *to++ = 0x40;
        *to++ = has_code ? 3 : 2;
        to = put_integer(to, self->frames[n].packet_id, 2);
        if (has_code) {
            *to++ = (uint8_t)codes[label];
        }
    }
    return acks;
}

/* ------------------------------------------------------------------------------------------- runs of frames */

PyDoc_STRVAR(rewrite_doc,
"rewrite(frames, is_v5, to_v5, qos, waited_s, more) -> bytes\n\n"
"The same messages for another receiver: in its version of MQTT, at a QoS that is not higher, with less expiry, and\n"
"with the properties `more` behind their own.");

static PyObject *
rewrite(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *frames;
    const char *more;
    Py_ssize_t more_size;
    int v5, to_v5, qos;
    unsigned int waited_s;
    if (!PyArg_ParseTuple(args, "SppiIy#:rewrite", &frames, &v5, &to_v5, &qos, &waited_s, &more, &more_size)) {
        return NULL;
    }
    bytes_t start = (bytes_t)PyBytes_AsString(frames), end = start + PyBytes_Size(frames);
    form_t form = {.v5 = to_v5, .waited_s = waited_s, .more = (bytes_t)more, .more_size = (size_t)more_size};
    parts_t parts;
    size_t size = 0;
    for (bytes_t at = start; at < end;) {
        at = read_frame(at, end, v5, &parts);
        if (at == NULL) {
            return NULL;
        }
        form.qos = (parts.first >> 1 & 3) < qos ? parts.first >> 1 & 3 : qos;
        size += frame_size(&parts, &form);
    }
    uint8_t *to;
    PyObject *made = new_bytes(size, &to);
    for (bytes_t at = start; made != NULL && at < end;) {
        at = read_frame(at, end, v5, &parts);
        form.qos = (parts.first >> 1 & 3) < qos ? parts.first >> 1 & 3 : qos;
        to = put_frame(to, &parts, &form);
    }
    return made;
}

PyDoc_STRVAR(number_doc,
"number(frames, first) -> bytes\n\n"
"QoS 1 frames with the packet identifiers from `first` on; 1 comes after 65,535.");

static PyObject *
number(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *frames;
    int first;
    if (!PyArg_ParseTuple(args, "Si:number", &frames, &first)) {
        return NULL;
    }
    if (first < 1 || first > 65535) {
        PyErr_SetString(PyExc_ValueError, "number: expected an identifier from 1 to 65535");
        return NULL;
    }
    size_t size = (size_t)PyBytes_Size(frames);
    uint8_t *at;
    PyObject *made = new_bytes(size, &at);
    if (made == NULL) {
        return NULL;
    }
    memcpy(at, PyBytes_AsString(frames), size);
    bytes_t end = at + size;
    while (at < end) {
        bytes_t next = skip_frame(at, end);
        if (next == NULL) {
            Py_DECREF(made);
            return NULL;
        }
        uint32_t length;
        int is_short;
        bytes_t body = read_varint(at + 1, end, &length, &is_short);
        if ((*at & 0xf6) != 0x32 || length < 4 || length - 4 < two_bytes(body)) {
            Py_DECREF(made);
            PyErr_SetString(PyExc_ValueError, "number: expected PUBLISH packets of QoS 1");
            return NULL;
        }
        put_integer(at + (body - at) + 2 + two_bytes(body), (uint64_t)first, 2);
        first = first == 65535 ? 1 : first + 1;
        at = (uint8_t *)next;
    }
    return made;
}

PyDoc_STRVAR(cut_doc,
"cut(frames, wanted, largest, most) -> tuple[int, int]\n\n"
"Where to cut a run: the first frames that have `wanted` bytes together, or `largest` at most, one at least; no more\n"
"than `most` of them. Gives their bytes and how many they are.");

static PyObject *
cut(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *frames;
    Py_ssize_t wanted, largest, most, count = 0;
    if (!PyArg_ParseTuple(args, "Snnn:cut", &frames, &wanted, &largest, &most)) {
        return NULL;
    }
    bytes_t start = (bytes_t)PyBytes_AsString(frames), end = start + PyBytes_Size(frames), at = start;
    while (at < end && at - start < wanted && count < most) {
        bytes_t next = skip_frame(at, end);
        if (next == NULL) {
            return NULL;
        }
        if (count && next - start > largest) {
            break;
        }
        at = next;
        count++;
    }
    return Py_BuildValue("nn", (Py_ssize_t)(at - start), count);
}

PyDoc_STRVAR(expired_doc,
"expired(frames, is_v5, waited_ms) -> bytes\n\nFor each frame 1 where its expiry is over after `waited_ms`, else 0.");

static PyObject *
expired(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *frames;
    int v5;
    long long waited_ms;
    if (!PyArg_ParseTuple(args, "SpL:expired", &frames, &v5, &waited_ms)) {
        return NULL;
    }
    bytes_t start = (bytes_t)PyBytes_AsString(frames), end = start + PyBytes_Size(frames);
    size_t count = 0;
    for (bytes_t at = start; at < end; count++) {
        at = skip_frame(at, end);
        if (at == NULL) {
            return NULL;
        }
    }
    uint8_t *mark;
    PyObject *marks = new_bytes(count, &mark);
    parts_t parts;
    for (bytes_t at = start; marks != NULL && at < end;) {
        at = read_frame(at, end, v5, &parts);
        if (at == NULL) {
            Py_DECREF(marks);
            return NULL;
        }
        *mark = 0;
        for (bytes_t each = parts.block; each < parts.block_end; each = property_end(each, parts.block_end)) {
            if (*each == EXPIRY) {
                *mark = (long long)four_bytes(each + 1) * 1000 <= waited_ms;
            }
        }
        mark++;
    }
    return marks;
}

PyDoc_STRVAR(select_doc,
"select(frames, marks, mark) -> bytes\n\nThe frames whose byte in `marks` is `mark`, in their order.");

static PyObject *
select_frames(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *frames, *marks;
    int mark;
    if (!PyArg_ParseTuple(args, "SSi:select", &frames, &marks, &mark)) {
        return NULL;
    }
    bytes_t at = (bytes_t)PyBytes_AsString(frames), end = at + PyBytes_Size(frames);
    bytes_t each = (bytes_t)PyBytes_AsString(marks), last = each + PyBytes_Size(marks);
    uint8_t *start;
    PyObject *room = new_bytes((size_t)(end - at), &start);
    if (room == NULL) {
        return NULL;
    }
    uint8_t *to = start;
    for (; at < end && each < last; each++) {
        bytes_t next = skip_frame(at, end);
        if (next == NULL) {
            Py_DECREF(room);
            return NULL;
        }
        if (*each == mark) {
            to = put_bytes(to, at, (size_t)(next - at));
        }
        at = next;
    }
    PyObject *selected = PyBytes_FromStringAndSize((const char *)start, to - start);
    Py_DECREF(room);
    return selected;
}

PyDoc_STRVAR(acknowledged_doc,
"acknowledged(data, start) -> tuple[list[tuple[int, int]], int]\n\n"
"The PUBACKs without reason code from `start` on: ranges of packet identifiers (first, how many), and where they end.");

static PyObject *
acknowledged(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *data;
    Py_ssize_t start;
    if (!PyArg_ParseTuple(args, "Sn:acknowledged", &data, &start)) {
        return NULL;
    }
    bytes_t bytes = (bytes_t)PyBytes_AsString(data);
    Py_ssize_t size = PyBytes_Size(data), at = start < 0 ? size : start;
    PyObject *ranges = PyList_New(0);
    while (ranges != NULL && size - at >= 4 && bytes[at] == 0x40 && bytes[at + 1] == 2) {
        unsigned first = two_bytes(bytes + at + 2), count = 0;
        if (first == 0) {
            break;
        }
        while (size - at >= 4 && bytes[at] == 0x40 && bytes[at + 1] == 2 &&
               two_bytes(bytes + at + 2) == first + count) {
            count++;
            at += 4;
        }
        PyObject *range = Py_BuildValue("II", first, count);
        if (range == NULL || PyList_Append(ranges, range) < 0) {
            Py_CLEAR(ranges);
        }
        Py_XDECREF(range);
    }
    return ranges == NULL ? NULL : Py_BuildValue("Nn", ranges, at);
}

PyDoc_STRVAR(records_doc,
"records(frames, is_v5, head, first) -> list[bytes]\n\n"
"A record of the journal for each frame (msgpack, see `journal.events`): `head`, then expiry, attributes, payload and\n"
"the event's number, which is `first` for the first frame.");

static PyObject *
records(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *frames;
    int v5;
    const char *head;
    Py_ssize_t head_size;
    unsigned long long first;
    if (!PyArg_ParseTuple(args, "Spy#K:records", &frames, &v5, &head, &head_size, &first)) {
        return NULL;
    }
    bytes_t start = (bytes_t)PyBytes_AsString(frames), end = start + PyBytes_Size(frames);
    PyObject *made = PyList_New(0);
    parts_t parts;
    for (bytes_t at = start; made != NULL && at < end; first++) {
        at = read_frame(at, end, v5, &parts);
        if (at == NULL) {
            Py_DECREF(made);
            return NULL;
        }
        size_t block = (size_t)(parts.block_end - parts.block), payload = (size_t)(parts.end - parts.payload);
        uint32_t expiry_s = NO_EXPIRY;
        int has_expiry = 0;
        for (bytes_t each = parts.block; each < parts.block_end; each = property_end(each, parts.block_end)) {
            if (*each == EXPIRY) {
                expiry_s = four_bytes(each + 1);
                has_expiry = 1;
                block -= 5;
            }
        }
        uint8_t *to;
        PyObject *record = new_bytes((size_t)head_size + (has_expiry ? 5 : 1) + 5 + block + 5 + payload + 11, &to);
        if (record == NULL) {
            Py_CLEAR(made);
            break;
        }
        to = put_bytes(to, head, (size_t)head_size);
        *to++ = has_expiry ? 0xce : 0xff; /* -1 */
        to = has_expiry ? put_integer(to, expiry_s, 4) : to;
        *to++ = 0xc6;
        to = put_integer(to, block, 4);
        for (bytes_t each = parts.block, next; each < parts.block_end; each = next) {
            next = property_end(each, parts.block_end);
            to = *each == EXPIRY ? to : put_bytes(to, each, (size_t)(next - each));
        }
        *to++ = 0xc6;
        to = put_integer(to, payload, 4);
        to = put_bytes(to, parts.payload, payload);
        *to++ = 0xcf;
        to = put_integer(to, first, 8);
        *to++ = 0x00; /* no packet identifier */
        *to++ = 0xc2; /* not retained */
        if (PyList_Append(made, record) < 0) {
            Py_CLEAR(made);
        }
        Py_DECREF(record);
    }
    return made;
}

static PyMethodDef frames_methods[] = {
    {"take", (PyCFunction)frames_take, METH_O, take_doc},
    {"spans", (PyCFunction)frames_spans, METH_O, spans_doc},
    {"relabel", (PyCFunction)frames_relabel, METH_VARARGS, relabel_doc},
    {"sizes", (PyCFunction)frames_sizes, METH_NOARGS, sizes_doc},
    {"places", (PyCFunction)frames_places, METH_O, places_doc},
    {"acks", (PyCFunction)frames_acks, METH_O, acks_doc},
    {NULL, NULL, 0, NULL},
};

static PyObject *
frames_get(Frames *self, void *which)
{
    switch ((intptr_t)which) {
    case 0: return PyLong_FromSsize_t(self->count);
    case 1: return PyLong_FromSsize_t(self->end);
    case 2: return PyLong_FromSsize_t(self->wanted);
    case 3: return PyLong_FromLong(self->qos);
    case 4: Py_INCREF(self->ways); return self->ways;
    case 5: Py_INCREF(self->data); return self->data;
    case 6: return PyLong_FromUnsignedLong(self->frames[0].start);
    default: return PyBool_FromLong(self->v5);
    }
}

static PyGetSetDef frames_fields[] = {
    {"count", (getter)frames_get, NULL, "how many frames there are", (void *)0},
    {"end", (getter)frames_get, NULL, "where they end in `data`", (void *)1},
    {"wanted", (getter)frames_get, NULL, "the size of the packet behind them that is not whole, 0: it is, or who knows",
     (void *)2},
    {"qos", (getter)frames_get, NULL, "of all of them", (void *)3},
    {"ways", (getter)frames_get, NULL, "what each label stands for", (void *)4},
    {"data", (getter)frames_get, NULL, "what was scanned", (void *)5},
    {"start", (getter)frames_get, NULL, "where they begin in `data`", (void *)6},
    {"is_v5", (getter)frames_get, NULL, "whether they are of MQTT 5", (void *)7},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot frames_slots[] = {
    {Py_tp_doc, "The clean frames of one read, each with a label that says who gets it."},
    {Py_tp_dealloc, frames_dealloc},
    {Py_tp_methods, frames_methods},
    {Py_tp_getset, frames_fields},
    {0, NULL},
};

static PyType_Spec frames_spec = {
    .name = "accord.core.native._native.Frames",
    .basicsize = sizeof(Frames),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = frames_slots,
};

static PyMethodDef functions[] = {
    {"scan", scan, METH_VARARGS, scan_doc},
    {"rewrite", rewrite, METH_VARARGS, rewrite_doc},
    {"number", number, METH_VARARGS, number_doc},
    {"cut", cut, METH_VARARGS, cut_doc},
    {"expired", expired, METH_VARARGS, expired_doc},
    {"select", select_frames, METH_VARARGS, select_doc},
    {"acknowledged", acknowledged, METH_VARARGS, acknowledged_doc},
    {"records", records, METH_VARARGS, records_doc},
    {NULL, NULL, 0, NULL},
};

int
native_add_frames(PyObject *module)
{
    if (frames_type == NULL) {
        frames_type = (PyTypeObject *)PyType_FromSpec(&frames_spec);
        if (frames_type == NULL) {
            return -1;
        }
    }
    return PyModule_AddType(module, frames_type) < 0 ? -1 : PyModule_AddFunctions(module, functions);
}
