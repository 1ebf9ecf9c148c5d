/* Frames of MQTT: scanning a read, and rewriting messages on their way to receivers.

   A *frame* is one PUBLISH, QoS 0 or 1. A frame is *clean* if Python need not look at it: its topic
   is known, it is neither retained nor a duplicate, and its properties are well-formed and of the
   kinds that are forwarded unchanged. Whatever is not clean, and whatever is wrong, ends a scan:
   Python takes that packet apart and says what is wrong with it. So a scan raises nothing for bad
   input from the network.

   Frames that were scanned once travel as runs, bytes of whole frames one after the other, and are
   taken apart again where they must change. */
#include "native.h"
#include <structmember.h>

enum { MAX_NAME = 256, CACHED = 64, PROBES = 4, FIRST_ROOM = 16, NO_ACK = 255 };
enum { UNKNOWN = -2, MAX_BODY = 268435455 }; /* bytes of a packet behind its length */

typedef struct {
    Bytes start, topic; /* the topic, with its length, may stand elsewhere */
    uint32_t topic_size;
    uint32_t block, payload, size; /* offsets of the properties, the payload and the end */
    uint32_t expiry_s, expiries;   /* the first expiry, and how many there are */
    uint32_t label;
    uint16_t packet_id; /* 0 at QoS 0 */
    uint16_t alias;     /* that stands for the topic, 0 where there is none */
} Frame;

/* ---- reading ---- */

static uint32_t four_bytes(Bytes at)
{
    return two_bytes(at) << 16 | two_bytes(at + 2);
}

/* Whether eight bytes are ASCII, and none of them is null. */
static inline bool is_plain(uint64_t bytes)
{
    uint64_t has_null = (bytes - 0x0101010101010101u) & ~bytes;
    return ((bytes | has_null) & 0x8080808080808080u) == 0;
}

/* Whether it is UTF-8 as MQTT wants it: no surrogates, no overlong forms, no null character. */
static bool is_text(Bytes at, size_t size)
{
    Bytes end = at + size;
    uint64_t eight;
    uint32_t four;
    for (; end - at >= 8; at += 8) {
        memcpy(&eight, at, 8);
        if (!is_plain(eight)) break;
    }
    if (end - at >= 4) {
        memcpy(&four, at, 4);
        if (is_plain((uint64_t)four << 32 | 0x01010101u)) at += 4;
    }
    while (at < end) {
        uint8_t lead = *at++;
        if (lead == 0) return false;
        if (lead < 0x80) continue;
        int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
        if (lead < 0xC2 || lead > 0xF4 || end - at < more) return false;
        if ((lead == 0xE0 && *at < 0xA0) || (lead == 0xED && *at > 0x9F)
            || (lead == 0xF0 && *at < 0x90) || (lead == 0xF4 && *at > 0x8F))
            return false;
        for (; more; more--)
            if ((*at++ & 0xC0) != 0x80) return false;
    }
    return true;
}

/* Whether an attribute may have this name; what means something to a node is for Python. */
static inline bool is_attribute(Bytes name, size_t size)
{
    bool is_own = size >= 7 && memcmp(name, "accord-", 7) == 0;
    return size && size <= MAX_NAME && !is_own && !meaning_of(name, size) && is_text(name, size);
}

static inline bool is_clean_pair(Bytes at)
{
    Bytes value = at + 3 + two_bytes(at + 1);
    return is_attribute(at + 3, two_bytes(at + 1)) && is_text(value + 2, two_bytes(value));
}

/* Whether a well-formed property is forwarded as it is. */
static inline bool is_clean(Bytes at)
{
    if (*at == CONTENT_TYPE) return is_text(at + 3, two_bytes(at + 1));
    if (*at == FORMAT) return at[1] <= 1;
    return *at == EXPIRY || (*at == ALIAS && two_bytes(at + 1) != 0);
}

/* Note expiry and alias; false where the properties are not well-formed, or, if asked, clean. */
static inline bool read_properties(Frame *frame, bool must_be_clean)
{
    uint64_t seen = 0;
    uint32_t pairs = 0;
    Bytes end = frame->start + frame->payload;
    for (Bytes at = frame->start + frame->block, next; at < end; at = next) {
        next = property_end(at, end);
        if (next == NULL) return false;
        if (*at == USER) {
            if (must_be_clean && (++pairs > MAX_PAIRS || !is_clean_pair(at))) return false;
            continue;
        }
        if (must_be_clean && !is_clean(at)) return false;
        if (*at == EXPIRY && frame->expiries++ == 0) frame->expiry_s = four_bytes(at + 1);
        if (*at == ALIAS) frame->alias = (uint16_t)two_bytes(at + 1);
        uint64_t bit = UINT64_C(1) << *at;
        if (seen & bit && must_be_clean) return false;
        seen |= bit;
    }
    return true;
}

/* Note where the packet at `at` has its body and its end, which may be beyond `end`. */
static inline bool read_length(Bytes at, Bytes end, Frame *frame)
{
    uint32_t length;
    Bytes body = end - at < 2 ? NULL : read_varint(at + 1, end, &length);
    if (body == NULL) return false;
    frame->start = at;
    frame->topic = body;
    frame->size = (uint32_t)(body - at) + length;
    return true;
}

/* Note where a PUBLISH that is all there has its parts. */
static inline bool read_parts(Frame *frame, bool is_v5)
{
    Bytes end = frame->start + frame->size;
    size_t id_size = *frame->start & 6 ? 2 : 0, length = (size_t)(end - frame->topic);
    if (length < 2 || length < 2 + two_bytes(frame->topic) + id_size) return false;
    frame->topic_size = 2 + two_bytes(frame->topic);
    Bytes block = frame->topic + frame->topic_size + id_size;
    frame->packet_id = id_size ? (uint16_t)two_bytes(block - 2) : 0;
    uint32_t block_size = 0;
    if (is_v5) block = read_varint(block, end, &block_size);
    if (block == NULL || (size_t)(end - block) < block_size) return false;
    frame->block = (uint32_t)(block - frame->start);
    frame->payload = frame->block + block_size;
    frame->expiries = frame->alias = 0;
    return true;
}

typedef enum { LENGTHS, V4, V5 } Depth;

typedef struct {
    Bytes at, end; /* what is left of it */
    Frame frame;
    Depth depth; /* to which its frames are read */
    bool has_failed;
} Run;

static Run run_of(PyObject *frames, Depth depth)
{
    Bytes start = (Bytes)PyBytes_AsString(frames);
    return (Run){.at = start, .end = start + PyBytes_Size(frames), .depth = depth};
}

/* Take the next frame of a run apart; false at its end, or with an exception where it is none. */
static inline bool next_frame(Run *run)
{
    Frame *frame = &run->frame;
    if (run->at == run->end) return false;
    bool is_read = read_length(run->at, run->end, frame)
                   && frame->size <= (size_t)(run->end - run->at);
    if (is_read && run->depth != LENGTHS)
        is_read = *run->at >> 4 == 3 && read_parts(frame, run->depth == V5)
                  && read_properties(frame, false);
    if (is_read) {
        run->at += frame->size;
        return true;
    }
    run->has_failed = true;
    PyErr_SetString(PyExc_ValueError, run->depth == LENGTHS ? "expected whole packets"
                                                            : "expected whole PUBLISH packets");
    return false;
}

/* ---- writing ---- */

typedef struct { /* how a frame is to be written */
    bool is_v5, drops_alias;
    int qos;
    uint32_t waited_s; /* taken off its expiry */
    const void *more;  /* further properties */
    size_t more_size;
} Form;

static PyObject *new_bytes(size_t size, uint8_t **start)
{
    PyObject *made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    *start = made == NULL ? NULL : (uint8_t *)PyBytes_AsString(made);
    return made;
}

/* What was written into `room`, from `start` to `end`. */
static PyObject *shorten(PyObject *room, const uint8_t *start, const uint8_t *end)
{
    PyObject *made = PyBytes_FromStringAndSize((const char *)start, end - start);
    Py_DECREF(room);
    return made;
}

static uint8_t *put_bytes(uint8_t *to, const void *from, size_t size)
{
    if (size) memcpy(to, from, size);
    return to + size;
}

static uint8_t *put_integer(uint8_t *to, uint64_t value, int size)
{
    for (int shift = 8 * (size - 1); shift >= 0; shift -= 8) *to++ = (uint8_t)(value >> shift);
    return to;
}

static uint8_t *put_varint(uint8_t *to, size_t value)
{
    for (; value >= 0x80; value >>= 7) *to++ = (uint8_t)(value | 0x80);
    *to++ = (uint8_t)value;
    return to;
}

static size_t varint_size(size_t value)
{
    size_t size = 1;
    for (; value >= 0x80; value >>= 7) size++;
    return size;
}

static size_t block_size(const Frame *frame, const Form *form)
{
    return frame->payload - frame->block + form->more_size - (form->drops_alias ? 3 : 0);
}

static size_t body_size(const Frame *frame, const Form *form)
{
    size_t block = block_size(frame, form);
    return frame->topic_size + (form->qos ? 2 : 0) + (form->is_v5 ? varint_size(block) + block : 0)
           + frame->size - frame->payload;
}

/* Add the size of a frame; false, with an exception, where no packet can have it. */
static bool add_size(size_t *size, const Frame *frame, const Form *form)
{
    size_t body = body_size(frame, form);
    *size += 1 + varint_size(body) + body;
    if (body > MAX_BODY)
        PyErr_Format(PyExc_ValueError, "expected a packet of at most %d bytes", MAX_BODY);
    return body <= MAX_BODY;
}

/* Write the properties of other kinds than `dropped`, with less expiry. */
static uint8_t *put_properties(uint8_t *to, const Frame *frame, uint8_t dropped, uint32_t waited_s)
{
    Bytes at = frame->start + frame->block, end = frame->start + frame->payload;
    if (!dropped && !(waited_s && frame->expiries)) return put_bytes(to, at, (size_t)(end - at));
    for (Bytes next; at < end; at = next) {
        next = property_end(at, end);
        if (*at == dropped) continue;
        to = put_bytes(to, at, (size_t)(next - at));
        if (*at == EXPIRY) {
            uint32_t expiry_s = four_bytes(at + 1);
            put_integer(to - 4, expiry_s > waited_s ? expiry_s - waited_s : 0, 4);
        }
    }
    return to;
}

static uint8_t *put_frame(uint8_t *to, const Frame *frame, const Form *form)
{
    *to++ = (uint8_t)(0x30 | form->qos << 1);
    to = put_varint(to, body_size(frame, form));
    to = put_bytes(to, frame->topic, frame->topic_size);
    if (form->qos) to = put_integer(to, frame->packet_id, 2);
    if (form->is_v5) {
        to = put_varint(to, block_size(frame, form));
        to = put_properties(to, frame, form->drops_alias ? ALIAS : 0, form->waited_s);
        to = put_bytes(to, form->more, form->more_size);
    }
    return put_bytes(to, frame->start + frame->payload, frame->size - frame->payload);
}

/* Append a pair to a list, which is given up where that fails. */
static void append_pair(PyObject **list, size_t first, size_t second)
{
    PyObject *pair = Py_BuildValue("nn", (Py_ssize_t)first, (Py_ssize_t)second);
    if (pair == NULL || PyList_Append(*list, pair) < 0) Py_CLEAR(*list);
    Py_XDECREF(pair);
}

/* ---- frames of a read ---- */

typedef struct {
    PyObject_HEAD
    PyObject *data;
    PyObject *ways;   /* by label: what the topics table has for the topic */
    PyObject *topics; /* by label: the topic with its length */
    Frame *frames;
    Py_ssize_t count, start, end, wanted;
    size_t room;
    int qos;
    bool is_v5, has_alias;
} Frames;

typedef struct {
    Bytes topic;
    uint32_t size, label;
} Cached;

typedef struct {
    PyObject *topics, *aliases;
    PyObject *labels; /* by topic */
    Cached cache[CACHED];
} Scan;

static PyTypeObject *frames_type;

/* The label of a topic, a new one if need be; UNKNOWN where it is not known. */
static int64_t label_of(Frames *self, const Scan *scan, PyObject *topic)
{
    PyObject *known = PyDict_GetItemWithError(scan->labels, topic);
    if (known != NULL) return PyLong_AsLong(known);
    PyObject *way = PyErr_Occurred() ? NULL : PyDict_GetItemWithError(scan->topics, topic);
    if (way == NULL) return PyErr_Occurred() ? FAILED : UNKNOWN;
    Py_ssize_t count = PyList_Size(self->topics);
    PyObject *label = PyLong_FromSsize_t(count);
    bool has_failed = PyList_Append(self->ways, way) < 0 || PyList_Append(self->topics, topic) < 0
                      || label == NULL || PyDict_SetItem(scan->labels, topic, label) < 0;
    Py_XDECREF(label);
    return has_failed ? FAILED : count;
}

static int64_t label_of_alias(Frames *self, const Scan *scan, Frame *frame)
{
    PyObject *number = PyLong_FromLong(frame->alias);
    PyObject *topic = number == NULL ? NULL : PyDict_GetItemWithError(scan->aliases, number);
    Py_XDECREF(number);
    if (topic == NULL) return PyErr_Occurred() ? FAILED : UNKNOWN;
    if (!PyBytes_Check(topic)) {
        PyErr_SetString(PyExc_TypeError, "scan: expected topics as bytes");
        return FAILED;
    }
    int64_t label = label_of(self, scan, topic);
    if (label >= 0) {
        PyObject *held = PyList_GetItem(self->topics, (Py_ssize_t)label);
        frame->topic = (Bytes)PyBytes_AsString(held);
        frame->topic_size = (uint32_t)PyBytes_Size(held);
        self->has_alias = true;
    }
    return label;
}

/* The label of a clean frame; a topic that comes with an alias is for Python, which notes both. */
static int64_t find_label(Frames *self, Scan *scan, Frame *frame)
{
    uint32_t size = frame->topic_size;
    if ((size == 2) != (frame->alias != 0)) return UNKNOWN;
    if (frame->alias) return label_of_alias(self, scan, frame);
    uint32_t hash = (uint32_t)hash_bytes(0, frame->topic, size) % CACHED;
    Cached *cached;
    for (uint32_t place = hash; place < hash + PROBES; place++) {
        cached = &scan->cache[place % CACHED];
        if (cached->size == size && memcmp(cached->topic, frame->topic, size) == 0)
            return cached->label;
        if (cached->size == 0) break;
    }
    PyObject *topic = PyBytes_FromStringAndSize((const char *)frame->topic, size);
    int64_t label = topic == NULL ? FAILED : label_of(self, scan, topic);
    Py_XDECREF(topic);
    if (label >= 0) *cached = (Cached){frame->topic, size, (uint32_t)label};
    return label;
}

static int scan_frames(Frames *self, Scan *scan, Bytes at, Bytes end, size_t limit)
{
    uint8_t first = *at;
    Frame frame;
    while (at < end && *at == first && read_length(at, end, &frame) && frame.size <= limit) {
        if (frame.size > (size_t)(end - at)) {
            self->wanted = frame.size;
            break;
        }
        if (!read_parts(&frame, self->is_v5) || (self->qos && frame.packet_id == 0)
            || !read_properties(&frame, true))
            break;
        int64_t label = find_label(self, scan, &frame);
        if (label == UNKNOWN) break;
        if (label < 0 || reserve(&self->frames, (size_t)self->count, &self->room, sizeof frame) < 0)
            return FAILED;
        frame.label = (uint32_t)label;
        self->frames[self->count++] = frame;
        at += frame.size;
    }
    self->end = at - (Bytes)PyBytes_AsString(self->data);
    return 0;
}

static Frames *new_frames(PyObject *data, bool is_v5, int qos, size_t room)
{
    Frames *self = (Frames *)((allocfunc)PyType_GetSlot(frames_type, Py_tp_alloc))(frames_type, 0);
    if (self == NULL) return NULL;
    self->data = Py_NewRef(data);
    self->is_v5 = is_v5;
    self->qos = qos;
    self->ways = PyList_New(0);
    self->topics = PyList_New(0);
    self->frames = PyMem_Malloc(room * sizeof(Frame));
    self->room = room;
    if (self->ways != NULL && self->topics != NULL && self->frames != NULL) return self;
    Py_DECREF(self);
    PyErr_NoMemory();
    return NULL;
}

static PyObject *scan_data(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *data;
    Py_ssize_t start, limit;
    int is_v5;
    Scan scan = {.topics = NULL};
    if (!PyArg_ParseTuple(args, "SnpnO!O!:scan", &data, &start, &is_v5, &limit, &PyDict_Type,
                          &scan.topics, &PyDict_Type, &scan.aliases))
        return NULL;
    if (start < 0 || limit < 0)
        return PyErr_Format(PyExc_ValueError, "scan: expected no negative start or limit");
    Bytes bytes = (Bytes)PyBytes_AsString(data);
    Py_ssize_t size = PyBytes_Size(data);
    if (start >= size || size >= UINT32_MAX || (bytes[start] & ~2) != 0x30) Py_RETURN_NONE;
    Frames *self = new_frames(data, is_v5, bytes[start] >> 1 & 3, FIRST_ROOM);
    if (self == NULL) return NULL;
    self->start = start;
    scan.labels = PyDict_New();
    bool has_failed = scan.labels == NULL
                      || scan_frames(self, &scan, bytes + start, bytes + size, (size_t)limit) < 0;
    Py_XDECREF(scan.labels);
    if (!has_failed && self->count) return (PyObject *)self;
    Py_DECREF(self);
    return has_failed ? NULL : Py_NewRef(Py_None);
}

static PyObject *single(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *data, *topics;
    int is_v5;
    Frame frame;
    if (!PyArg_ParseTuple(args, "SpO!:single", &data, &is_v5, &PyDict_Type, &topics)) return NULL;
    Bytes at = (Bytes)PyBytes_AsString(data), end = at + PyBytes_Size(data);
    if (end - at < 2 || (*at & ~2) != 0x30 || !read_length(at, end, &frame)
        || frame.size != (size_t)(end - at) || !read_parts(&frame, is_v5)
        || (*at != 0x30 && frame.packet_id == 0) || !read_properties(&frame, true) || frame.alias)
        Py_RETURN_NONE;
    PyObject *topic = PyBytes_FromStringAndSize((const char *)frame.topic, frame.topic_size);
    PyObject *way = topic == NULL ? NULL : PyDict_GetItemWithError(topics, topic);
    Py_XDECREF(topic);
    if (way == NULL) return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    long long expiry_s = frame.expiry_s;
    if (!frame.expiries || expiry_s == UINT32_MAX) expiry_s = -1;
    return Py_BuildValue("OLi", way, expiry_s, frame.packet_id);
}

static void frames_dealloc(Frames *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyMem_Free(self->frames);
    Py_XDECREF(self->data);
    Py_XDECREF(self->ways);
    Py_XDECREF(self->topics);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* The next frame that has `label`, from `*place` on; NULL where there is none. */
static inline Frame *next_of(const Frames *self, size_t label, Py_ssize_t *place)
{
    while (*place < self->count) {
        Frame *frame = &self->frames[(*place)++];
        if (frame->label == label) return frame;
    }
    return NULL;
}

/* The label that a Python object says; one that no frame has for what is none. */
static size_t asked_label(PyObject *object)
{
    Py_ssize_t label = PyLong_AsSsize_t(object);
    return label < 0 ? SIZE_MAX : (size_t)label;
}

/* The byte of a frame's label among `marks`, or `other` beyond them. */
static inline uint8_t mark_of(const char *marks, Py_ssize_t count, const Frame *frame, int other)
{
    return (uint8_t)(frame->label < (size_t)count ? marks[frame->label] : other);
}

static PyObject *frames_take(Frames *self, PyObject *argument)
{
    char *wanted;
    Py_ssize_t labels;
    if (PyBytes_AsStringAndSize(argument, &wanted, &labels) < 0) return NULL;
    Form form = {.is_v5 = self->is_v5, .qos = self->qos, .drops_alias = true};
    const Frame *end = self->frames + self->count;
    size_t size = 0, count = 0;
    uint32_t none = UINT32_MAX, least = none; /* the largest expiry is as good as none */
    for (const Frame *frame = self->frames; frame < end; frame++) {
        if (!mark_of(wanted, labels, frame, 0)) continue;
        count++;
        if (frame->expiries && frame->expiry_s < least) least = frame->expiry_s;
        if (!frame->alias)
            size += frame->size;
        else if (!add_size(&size, frame, &form))
            return NULL;
    }
    uint8_t *to, *mark;
    PyObject *taken = new_bytes(size, &to), *marks = new_bytes(count, &mark);
    if (taken == NULL || marks == NULL) {
        Py_XDECREF(taken);
        Py_XDECREF(marks);
        return NULL;
    }
    bool is_whole = count == (size_t)self->count && size == (size_t)(self->end - self->start)
                    && !self->has_alias; /* one after the other, as they were read */
    if (is_whole) put_bytes(to, self->frames->start, size);
    for (const Frame *frame = self->frames; frame < end; frame++) {
        uint8_t found = mark_of(wanted, labels, frame, 0);
        if (!found) continue;
        *mark++ = found;
        if (is_whole) continue;
        to = frame->alias ? put_frame(to, frame, &form) : put_bytes(to, frame->start, frame->size);
    }
    return Py_BuildValue("NNL", taken, marks, least == none ? -1LL : (long long)least);
}

static PyObject *frames_spans(Frames *self, PyObject *argument)
{
    size_t label = asked_label(argument);
    uint8_t *start, *to;
    PyObject *room = PyErr_Occurred() ? NULL : new_bytes((size_t)self->count * 8, &start);
    if (room == NULL) return NULL;
    Bytes data = (Bytes)PyBytes_AsString(self->data);
    const Frame *frame;
    to = start;
    for (Py_ssize_t n = 0; (frame = next_of(self, label, &n)) != NULL;) {
        uint32_t offset = (uint32_t)(frame->start - data);
        uint32_t pair[2] = {offset + frame->block, offset + frame->payload};
        to = put_bytes(to, pair, sizeof pair);
    }
    return shorten(room, start, to);
}

static PyObject *frames_relabel(Frames *self, PyObject *args)
{
    Py_ssize_t label;
    Py_buffer which;
    PyObject *ways, *result = NULL;
    if (!PyArg_ParseTuple(args, "ny*O!:relabel", &label, &which, &PyList_Type, &ways)) return NULL;
    Py_ssize_t first = PyList_Size(self->topics), added = PyList_Size(ways), count = 0, n;
    uint32_t step;
    bool is_right = label >= 0 && label < first && added <= INT32_MAX - first && which.len % 4 == 0;
    for (n = 0; next_of(self, label, &n) != NULL;) count++;
    for (n = 0; n < which.len / 4; n++) {
        memcpy(&step, (const char *)which.buf + 4 * n, 4);
        is_right &= step < (size_t)added;
    }
    if (!is_right || count != which.len / 4) {
        PyErr_SetString(PyExc_ValueError, "relabel: expected a way's number for each frame");
        goto done;
    }
    if (PyList_SetSlice(self->ways, first, first, ways) < 0) goto done;
    for (n = 0; n < added; n++)
        if (PyList_Append(self->topics, PyList_GetItem(self->topics, label)) < 0) goto done;
    n = 0;
    for (Py_ssize_t at = 0; at < count; at++) {
        memcpy(&step, (const char *)which.buf + 4 * at, 4);
        next_of(self, label, &n)->label = (uint32_t)first + step;
    }
    result = PyLong_FromSsize_t(first);
done:
    PyBuffer_Release(&which);
    return result;
}

static PyObject *frames_piece(Frames *self, PyObject *args)
{
    Py_ssize_t label, first, count, n = 0;
    if (!PyArg_ParseTuple(args, "nnn:piece", &label, &first, &count)) return NULL;
    if (label < 0 || label >= PyList_Size(self->topics) || first < 0 || count < 1)
        return PyErr_Format(PyExc_ValueError, "piece: expected frames of a label");
    count = count < self->count ? count : self->count;
    Frames *made = new_frames(self->data, self->is_v5, self->qos, (size_t)count);
    if (made == NULL) return NULL;
    const Frame *frame = NULL;
    for (Py_ssize_t place = 0; made->count < count; place++) {
        if ((frame = next_of(self, (size_t)label, &n)) == NULL) break;
        if (place < first) continue;
        made->frames[made->count] = *frame;
        made->frames[made->count++].label = 0;
    }
    made->has_alias = self->has_alias;
    if (made->count) {
        Bytes data = (Bytes)PyBytes_AsString(self->data);
        frame = &made->frames[made->count - 1];
        made->start = made->frames->start - data;
        made->end = frame->start - data + (Py_ssize_t)frame->size;
        if (PyList_Append(made->topics, PyList_GetItem(self->topics, label)) == 0
            && PyList_Append(made->ways, PyList_GetItem(self->ways, label)) == 0)
            return (PyObject *)made;
    } else {
        PyErr_SetString(PyExc_ValueError, "piece: expected frames of a label");
    }
    Py_DECREF(made);
    return NULL;
}

static PyObject *frames_sizes(Frames *self, PyObject *Py_UNUSED(unused))
{
    size_t labels = (size_t)PyList_Size(self->topics);
    size_t(*sums)[2] = PyMem_Calloc(labels, sizeof *sums);
    if (sums == NULL) return PyErr_NoMemory();
    for (const Frame *frame = self->frames; frame < self->frames + self->count; frame++) {
        sums[frame->label][0]++;
        sums[frame->label][1] += frame->size;
    }
    PyObject *sizes = PyList_New(0);
    for (size_t label = 0; sizes != NULL && label < labels; label++)
        append_pair(&sizes, sums[label][0], sums[label][1]);
    PyMem_Free(sums);
    return sizes;
}

static PyObject *frames_places(Frames *self, PyObject *argument)
{
    size_t label = asked_label(argument);
    PyObject *places = PyErr_Occurred() ? NULL : PyList_New(0);
    Bytes data = (Bytes)PyBytes_AsString(self->data);
    const Frame *frame;
    for (Py_ssize_t n = 0; places != NULL && (frame = next_of(self, label, &n)) != NULL;) {
        size_t start = (size_t)(frame->start - data);
        append_pair(&places, start, start + frame->size);
    }
    return places;
}

static PyObject *frames_acks(Frames *self, PyObject *argument)
{
    char *codes;
    Py_ssize_t labels;
    uint8_t *start;
    if (PyBytes_AsStringAndSize(argument, &codes, &labels) < 0) return NULL;
    PyObject *room = new_bytes((size_t)self->count * 5, &start);
    if (room == NULL) return NULL;
    uint8_t *to = start;
    for (const Frame *frame = self->frames; frame < self->frames + self->count; frame++) {
        uint8_t code = mark_of(codes, labels, frame, NO_ACK);
        if (code == NO_ACK) continue;
        bool has_code = code && self->is_v5;
        *to++ = 0x40;
        *to++ = has_code ? 3 : 2;
        to = put_integer(to, frame->packet_id, 2);
        if (has_code) *to++ = code;
    }
    return shorten(room, start, to);
}

/* ---- runs ---- */

static PyObject *rewrite(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *frames;
    const char *more;
    Py_ssize_t extra;
    int is_v5, to_v5, most_qos;
    long long waited_s;
    if (!PyArg_ParseTuple(args, "SppiLy#:rewrite", &frames, &is_v5, &to_v5, &most_qos, &waited_s,
                          &more, &extra))
        return NULL;
    if (most_qos < 0 || most_qos > 2 || waited_s < 0 || waited_s > UINT32_MAX)
        return PyErr_Format(PyExc_ValueError, "rewrite: expected a QoS, and seconds of 32 bits");
    Form form = {.is_v5 = to_v5, .waited_s = (uint32_t)waited_s, .more = more,
                 .more_size = (size_t)extra};
    size_t size = 0;
    uint8_t *to = NULL;
    PyObject *made = NULL;
    for (int is_writing = 0; is_writing <= 1; is_writing++) {
        Run run = run_of(frames, is_v5 ? V5 : V4);
        if (is_writing && (made = new_bytes(size, &to)) == NULL) return NULL;
        while (next_frame(&run)) {
            int qos = *run.frame.start >> 1 & 3;
            form.qos = qos < most_qos ? qos : most_qos;
            if (is_writing)
                to = put_frame(to, &run.frame, &form);
            else if (!add_size(&size, &run.frame, &form))
                return NULL;
        }
        if (run.has_failed) return NULL; /* before anything was made */
    }
    return made;
}

static PyObject *number(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *frames;
    Py_ssize_t first;
    uint8_t *to;
    if (!PyArg_ParseTuple(args, "Sn:number", &frames, &first)) return NULL;
    if (first < 1 || first > 65535)
        return PyErr_Format(PyExc_ValueError, "number: expected an identifier from 1 to 65535");
    Run run = run_of(frames, V4);
    Bytes start = run.at;
    PyObject *made = new_bytes((size_t)(run.end - start), &to);
    if (made == NULL) return NULL;
    put_bytes(to, start, (size_t)(run.end - start));
    while (next_frame(&run)) {
        if ((*run.frame.start & 0xF6) != 0x32) {
            PyErr_SetString(PyExc_ValueError, "number: expected PUBLISH packets of QoS 1");
            run.has_failed = true;
            break;
        }
        put_integer(to + (run.frame.topic - start) + run.frame.topic_size, (uint64_t)first, 2);
        first = first == 65535 ? 1 : first + 1;
    }
    if (run.has_failed) Py_CLEAR(made);
    return made;
}

static PyObject *cut(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *frames;
    Py_ssize_t wanted, largest, most, size = 0, count = 0;
    if (!PyArg_ParseTuple(args, "Snnn:cut", &frames, &wanted, &largest, &most)) return NULL;
    Run run = run_of(frames, LENGTHS);
    Bytes start = run.at;
    while (size < wanted && count < most && next_frame(&run)) {
        if (count && run.at - start > largest) break;
        size = run.at - start;
        count++;
    }
    return run.has_failed ? NULL : Py_BuildValue("nn", size, count);
}

static PyObject *expired(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *frames;
    int is_v5;
    long long waited_ms;
    size_t count = 0;
    uint8_t *mark;
    if (!PyArg_ParseTuple(args, "SpL:expired", &frames, &is_v5, &waited_ms)) return NULL;
    Run run = run_of(frames, LENGTHS);
    while (next_frame(&run)) count++;
    PyObject *marks = run.has_failed ? NULL : new_bytes(count, &mark);
    if (marks == NULL) return NULL;
    run = run_of(frames, is_v5 ? V5 : V4);
    while (next_frame(&run))
        *mark++ = run.frame.expiries && (long long)run.frame.expiry_s * 1000 <= waited_ms;
    if (run.has_failed) Py_CLEAR(marks);
    return marks;
}

static bool is_ack(Bytes data, Py_ssize_t at, Py_ssize_t size)
{
    return size - at >= 4 && data[at] == 0x40 && data[at + 1] == 2;
}

static PyObject *acknowledged(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *object;
    Py_ssize_t at;
    if (!PyArg_ParseTuple(args, "Sn:acknowledged", &object, &at)) return NULL;
    if (at < 0) return PyErr_Format(PyExc_ValueError, "acknowledged: expected no negative start");
    Bytes data = (Bytes)PyBytes_AsString(object);
    Py_ssize_t size = PyBytes_Size(object);
    PyObject *ranges = PyList_New(0);
    while (ranges != NULL && is_ack(data, at, size)) {
        uint32_t first = two_bytes(data + at + 2), count = 0;
        if (first == 0) break;
        for (; is_ack(data, at, size) && two_bytes(data + at + 2) == first + count; at += 4)
            count++;
        append_pair(&ranges, first, count);
    }
    return ranges == NULL ? NULL : Py_BuildValue("Nn", ranges, at);
}

/* A record in msgpack; see `accord.journal.events`. */
static PyObject *new_record(const Frame *frame, const char *head, size_t head_size, uint64_t number)
{
    size_t block = frame->payload - frame->block - 5 * (size_t)frame->expiries;
    size_t payload = frame->size - frame->payload;
    uint8_t *to;
    PyObject *record =
        new_bytes(head_size + (frame->expiries ? 5 : 1) + 5 + block + 5 + payload + 11, &to);
    if (record == NULL) return NULL;
    to = put_bytes(to, head, head_size);
    *to++ = frame->expiries ? 0xCE : 0xFF; /* -1 */
    if (frame->expiries) to = put_integer(to, frame->expiry_s, 4);
    *to++ = 0xC6;
    to = put_integer(to, block, 4);
    to = put_properties(to, frame, EXPIRY, 0);
    *to++ = 0xC6;
    to = put_integer(to, payload, 4);
    to = put_bytes(to, frame->start + frame->payload, payload);
    *to++ = 0xCF;
    to = put_integer(to, number, 8);
    *to++ = 0x00; /* no packet identifier */
    *to++ = 0xC2; /* not retained */
    return record;
}

static PyObject *records(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *frames;
    int is_v5;
    const char *head;
    Py_ssize_t head_size;
    long long first;
    if (!PyArg_ParseTuple(args, "Spy#L:records", &frames, &is_v5, &head, &head_size, &first))
        return NULL;
    if (first < 0) return PyErr_Format(PyExc_ValueError, "records: expected no negative number");
    Run run = run_of(frames, is_v5 ? V5 : V4);
    PyObject *made = PyList_New(0);
    while (made != NULL && next_frame(&run)) {
        PyObject *record = new_record(&run.frame, head, (size_t)head_size, (uint64_t)first++);
        if (record == NULL || PyList_Append(made, record) < 0) Py_CLEAR(made);
        Py_XDECREF(record);
    }
    if (run.has_failed) Py_CLEAR(made);
    return made;
}

/* ---- the module's part; `reference` says what each does ---- */

static PyMethodDef frames_methods[] = {
    {"take", (PyCFunction)frames_take, METH_O, "Frames, their marks and their least expiry."},
    {"spans", (PyCFunction)frames_spans, METH_O, "Where the properties of a label's frames are."},
    {"relabel", (PyCFunction)frames_relabel, METH_VARARGS, "Give a label's frames new labels."},
    {"piece", (PyCFunction)frames_piece, METH_VARARGS, "Some of a label's frames."},
    {"sizes", (PyCFunction)frames_sizes, METH_NOARGS, "Frames and bytes of each label."},
    {"places", (PyCFunction)frames_places, METH_O, "Where a label's frames begin and end."},
    {"acks", (PyCFunction)frames_acks, METH_O, "The PUBACKs of the frames."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef frames_members[] = {
    {"count", T_PYSSIZET, offsetof(Frames, count), READONLY, "How many frames there are."},
    {"start", T_PYSSIZET, offsetof(Frames, start), READONLY, "Where they begin in `data`."},
    {"end", T_PYSSIZET, offsetof(Frames, end), READONLY, "Where they end in `data`."},
    {"wanted", T_PYSSIZET, offsetof(Frames, wanted), READONLY, "The next packet's size, or 0."},
    {"qos", T_INT, offsetof(Frames, qos), READONLY, "Of all of them."},
    {"is_v5", T_BOOL, offsetof(Frames, is_v5), READONLY, "Whether they are of MQTT 5."},
    {"ways", T_OBJECT_EX, offsetof(Frames, ways), READONLY, "What each label stands for."},
    {"data", T_OBJECT_EX, offsetof(Frames, data), READONLY, "What was scanned."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot frames_slots[] = {
    {Py_tp_doc, "The clean frames of one read, each with a label that says who gets it."},
    {Py_tp_dealloc, frames_dealloc},
    {Py_tp_methods, frames_methods},
    {Py_tp_members, frames_members},
    {0, NULL},
};

static PyType_Spec frames_spec = {
    .name = "accord.core.native._native.Frames",
    .basicsize = sizeof(Frames),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = frames_slots,
};

static PyMethodDef functions[] = {
    {"scan", scan_data, METH_VARARGS, "The clean frames of a read, from a position on."},
    {"single", single, METH_VARARGS, "What is known of a read that is one clean frame."},
    {"rewrite", rewrite, METH_VARARGS, "The same messages for another receiver."},
    {"number", number, METH_VARARGS, "The same frames with packet identifiers one after another."},
    {"cut", cut, METH_VARARGS, "Where to cut a run."},
    {"expired", expired, METH_VARARGS, "Which frames have expired."},
    {"acknowledged", acknowledged, METH_VARARGS, "What a sequence of PUBACKs acknowledges."},
    {"records", records, METH_VARARGS, "Records of the journal."},
    {NULL, NULL, 0, NULL},
};

int native_add_frames(PyObject *module)
{
    if (frames_type == NULL) frames_type = (PyTypeObject *)PyType_FromSpec(&frames_spec);
    if (frames_type == NULL || PyModule_AddType(module, frames_type) < 0) return FAILED;
    return PyModule_AddFunctions(module, functions);
}
