/* What the sources of this extension share. */
#ifndef ACCORD_NATIVE_H
#define ACCORD_NATIVE_H

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Each source adds its functions and types to the module; 0, or -1 with an exception set. */
int native_add_frames(PyObject *module);
int native_add_match(PyObject *module);

#endif
