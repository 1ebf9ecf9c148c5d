/* What the sources of this extension share. */
#ifndef ACCORD_NATIVE_H
#define ACCORD_NATIVE_H

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { FAILED = -1 }; /* with an exception set */
enum { FORMAT = 0x01, EXPIRY = 0x02, CONTENT_TYPE = 0x03, RESPONSE = 0x08, CORRELATION = 0x09 };
enum { IDENTIFIER = 0x0B, ALIAS = 0x23, USER = 0x26, MAX_PAIRS = 256 };
enum { ORDINARY, KEY, DEADLINE, METADATA }; /* what a name means to a node */

typedef const uint8_t *Bytes;

/* Each source adds its functions and types to the module: 0 or FAILED. */
int native_add_frames(PyObject *module);
int native_add_match(PyObject *module);

/* Make room for more items of `size` bytes in an array: 0 or FAILED. */
int native_grow(void *array, size_t *room, size_t size);

/* Make room for one item more than `count`. */
static inline int reserve(void *array, size_t count, size_t *room, size_t size)
{
    return count < *room ? 0 : native_grow(array, room, size);
}

static inline uint64_t mix(uint64_t hash)
{
    hash ^= hash >> 32;
    hash *= UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 29;
}

static inline uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t length)
{
    Bytes at = bytes, end = at + length;
    uint64_t word;
    hash ^= length;
    for (; end - at > 8; at += 8) {
        memcpy(&word, at, 8);
        hash = mix(hash ^ word);
    }
    if (length >= 8)
        memcpy(&word, end - 8, 8); /* with some bytes once more */
    else
        for (word = 0; at < end; at++) word = word << 8 | *at;
    return mix(hash ^ word);
}

static inline uint32_t two_bytes(Bytes at)
{
    return (uint32_t)at[0] << 8 | at[1];
}

static inline bool is_same(Bytes at, size_t size, const char *text)
{
    return size == strlen(text) && memcmp(at, text, size) == 0;
}

static inline uint32_t meaning_of(Bytes name, size_t size)
{
    return is_same(name, size, "key")           ? KEY
           : is_same(name, size, "deadline-ms") ? DEADLINE
           : is_same(name, size, "metadata")    ? METADATA
                                                : ORDINARY;
}

/* Read a variable byte integer; gives what follows it, or NULL where there is none. */
static inline Bytes read_varint(Bytes at, Bytes end, uint32_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 28 && at < end; shift += 7) {
        uint8_t byte = *at++;
        *value |= (uint32_t)(byte & 0x7F) << shift;
        if (byte < 0x80) return byte == 0 && shift ? NULL : at;
    }
    return NULL;
}

/* The end of the text that stands at `at` behind its length, or NULL. */
static inline Bytes text_end(Bytes at, Bytes end)
{
    if (at == NULL || end - at < 2 || end - at - 2 < (ptrdiff_t)two_bytes(at)) return NULL;
    return at + 2 + two_bytes(at);
}

/* The end of the property at `at`, or NULL where it goes beyond `end` or a PUBLISH has no such. */
static inline Bytes property_end(Bytes at, Bytes end)
{
    uint32_t value;
    uint8_t kind = *at++;
    if (kind == USER) return text_end(text_end(at, end), end);
    if (kind == CONTENT_TYPE || kind == RESPONSE || kind == CORRELATION) return text_end(at, end);
    if (kind == IDENTIFIER) return read_varint(at, end, &value);
    ptrdiff_t size = kind == FORMAT ? 1 : kind == EXPIRY ? 4 : kind == ALIAS ? 2 : PTRDIFF_MAX;
    return end - at < size ? NULL : at + size;
}

#endif
