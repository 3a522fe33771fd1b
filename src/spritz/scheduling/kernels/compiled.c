/* The module of the scheduler's compiled loops; see kernels/__init__.py. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern PyMethodDef lanes_methods[], timeline_methods[], openings_methods[];

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_compiled", "Inner loops of the scheduler.", 0, NULL, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__compiled(void)
{
    PyMethodDef *const all[] = {lanes_methods, timeline_methods, openings_methods};
    PyObject *module = PyModule_Create(&definition);
    for (int each = 0; module && each < 3; each++)
        if (PyModule_AddFunctions(module, all[each]) < 0)
            Py_CLEAR(module);
    return module;
}
