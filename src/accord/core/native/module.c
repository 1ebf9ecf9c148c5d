/* The extension module: functions and final classes that loop over the bytes of messages.

   Decisions are made in Python. `accord.core.native.reference` has the same interface in Python: it
   defines what each function means, and runs where this module was not built. */
#include "native.h"

int native_grow(void *array, size_t *room, size_t size)
{
    size_t more = *room ? *room * 2 : 2;
    void *grown = more > SIZE_MAX / 2 / size ? NULL : PyMem_Realloc(*(void **)array, more * size);
    if (grown == NULL) {
        PyErr_NoMemory();
        return FAILED;
    }
    *(void **)array = grown;
    *room = more;
    return 0;
}

static int module_exec(PyObject *module)
{
    return native_add_frames(module) < 0 ? FAILED : native_add_match(module);
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
    {0, NULL},
};

static PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_native",
    .m_doc = "Loops over the bytes of messages.",
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&module_def);
}
