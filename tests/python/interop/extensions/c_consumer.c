// A consumer and a producer in plain C, for test_c_extension.py: the buffer protocol, and DLPack without any library.

#include <Python.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

// The structs of DLPack 1.3, by their layout.
typedef struct {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} Tensor;

typedef struct Legacy {
    Tensor tensor;
    void *context;
    void (*deleter)(struct Legacy *);
} Legacy;

typedef struct Versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct Versioned *);
    uint64_t flags;
    Tensor tensor;
} Versioned;

_Static_assert(sizeof(Tensor) == 48 && sizeof(Legacy) == 64 && sizeof(Versioned) == 80, "the layout of DLPack");

static const char LEGACY[] = "dltensor", USED_LEGACY[] = "used_dltensor";
static const char VERSIONED[] = "dltensor_versioned", USED_VERSIONED[] = "used_dltensor_versioned";

// ---- The buffer protocol ----

static PyObject *sizes(const Py_ssize_t *values, int count) {
    if (values == NULL)
        Py_RETURN_NONE;
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple != NULL && i < count; ++i)
        PyTuple_SET_ITEM(tuple, i, PyLong_FromSsize_t(values[i]));
    return tuple;
}

static PyObject *described(const Py_buffer *view) {
    return Py_BuildValue("{s:n,s:n,s:n,s:i,s:i,s:z,s:N,s:N,s:O}", "address", (Py_ssize_t)view->buf, "len", view->len,
                         "itemsize", view->itemsize, "readonly", view->readonly, "ndim", view->ndim, "format",
                         view->format, "shape", sizes(view->shape, view->ndim), "strides",
                         sizes(view->strides, view->ndim), "suboffsets",
                         view->suboffsets == NULL ? Py_None : Py_True);
}

static PyObject *buffer(PyObject *self, PyObject *arguments) {
    PyObject *exporter;
    int flags;
    Py_buffer view;
    if (!PyArg_ParseTuple(arguments, "Oi", &exporter, &flags) || PyObject_GetBuffer(exporter, &view, flags) < 0)
        return NULL;
    PyObject *description = described(&view);
    PyBuffer_Release(&view);
    return description;
}

static void drop_view(PyObject *capsule) {
    Py_buffer *view = PyCapsule_GetPointer(capsule, "view");
    PyBuffer_Release(view);
    PyMem_Free(view);
}

// A view that lasts as long as the capsule.
static PyObject *hold(PyObject *self, PyObject *arguments) {
    PyObject *exporter;
    int flags;
    Py_buffer *view;
    if (!PyArg_ParseTuple(arguments, "Oi", &exporter, &flags))
        return NULL;
    if ((view = PyMem_Malloc(sizeof *view)) == NULL)
        return PyErr_NoMemory();
    if (PyObject_GetBuffer(exporter, view, flags) < 0) {
        PyMem_Free(view);
        return NULL;
    }
    return PyCapsule_New(view, "view", drop_view);
}

static PyObject *held(PyObject *self, PyObject *capsule) {
    Py_buffer *view = PyCapsule_GetPointer(capsule, "view");
    return view == NULL ? NULL : described(view);
}

// Adds up doubles of any strides: what a numeric extension does with a buffer.
static double total(const char *at, const Py_ssize_t *shape, const Py_ssize_t *strides, int ndim) {
    double sum = 0;
    if (ndim == 0) {
        memcpy(&sum, at, sizeof sum);
        return sum;
    }
    for (Py_ssize_t i = 0; i < shape[0]; ++i)
        sum += total(at + i * strides[0], shape + 1, strides + 1, ndim - 1);
    return sum;
}

static PyObject *sum(PyObject *self, PyObject *exporter) {
    Py_buffer view;
    if (PyObject_GetBuffer(exporter, &view, PyBUF_RECORDS_RO) < 0)
        return NULL;
    PyObject *result = NULL;
    if (view.format == NULL || strcmp(view.format, "d") != 0)
        PyErr_SetString(PyExc_TypeError, "not doubles");
    else
        result = PyFloat_FromDouble(total(view.buf, view.shape, view.strides, view.ndim));
    PyBuffer_Release(&view);
    return result;
}

static PyObject *fill(PyObject *self, PyObject *arguments) {
    PyObject *exporter;
    int byte;
    Py_buffer view;
    if (!PyArg_ParseTuple(arguments, "Oi", &exporter, &byte) || PyObject_GetBuffer(exporter, &view, PyBUF_CONTIG) < 0)
        return NULL;
    memset(view.buf, byte, (size_t)view.len);
    PyBuffer_Release(&view);
    Py_RETURN_NONE;
}

// ---- DLPack, as a consumer ----

typedef struct {
    Legacy *legacy;
    Versioned *versioned;
} Taken;

static void delete_taken(Taken *taken) {
    if (taken->legacy != NULL && taken->legacy->deleter != NULL)
        taken->legacy->deleter(taken->legacy);
    if (taken->versioned != NULL && taken->versioned->deleter != NULL)
        taken->versioned->deleter(taken->versioned);
    taken->legacy = NULL;
    taken->versioned = NULL;
}

static void drop_taken(PyObject *capsule) {
    Taken *taken = PyCapsule_GetPointer(capsule, "taken");
    delete_taken(taken);
    PyMem_Free(taken);
}

// Takes the tensor out of a capsule, which gets its used name.
static PyObject *take(PyObject *self, PyObject *capsule) {
    Taken found = {NULL, NULL};
    const char *used = NULL;
    if (PyCapsule_IsValid(capsule, VERSIONED)) {
        found.versioned = PyCapsule_GetPointer(capsule, VERSIONED);
        used = USED_VERSIONED;
    } else if (PyCapsule_IsValid(capsule, LEGACY)) {
        found.legacy = PyCapsule_GetPointer(capsule, LEGACY);
        used = USED_LEGACY;
    } else {
        PyErr_SetString(PyExc_ValueError, "no DLPack capsule, or one that was consumed");
        return NULL;
    }
    Taken *taken = PyMem_Malloc(sizeof *taken);
    if (taken == NULL)
        return PyErr_NoMemory();
    *taken = found;
    PyObject *handle = PyCapsule_New(taken, "taken", drop_taken);
    if (handle == NULL || PyCapsule_SetName(capsule, used) < 0) {
        Py_XDECREF(handle);
        return NULL;
    }
    return handle;
}

static PyObject *dims(const int64_t *values, int count) {
    if (values == NULL)
        Py_RETURN_NONE;
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple != NULL && i < count; ++i)
        PyTuple_SET_ITEM(tuple, i, PyLong_FromLongLong(values[i]));
    return tuple;
}

static PyObject *taken(PyObject *self, PyObject *handle) {
    Taken *found = PyCapsule_GetPointer(handle, "taken");
    if (found == NULL)
        return NULL;
    if (found->versioned == NULL && found->legacy == NULL)
        Py_RETURN_NONE;
    const Tensor *tensor = found->versioned != NULL ? &found->versioned->tensor : &found->legacy->tensor;
    PyObject *version = Py_None, *flags = Py_None;
    if (found->versioned != NULL) {
        version = Py_BuildValue("(II)", found->versioned->major, found->versioned->minor);
        flags = PyLong_FromUnsignedLongLong(found->versioned->flags);
    } else {
        Py_INCREF(version);
        Py_INCREF(flags);
    }
    return Py_BuildValue("{s:N,s:N,s:n,s:N,s:N,s:(iii),s:(ii)}", "version", version, "flags", flags, "address",
                         (Py_ssize_t)((char *)tensor->data + tensor->byte_offset), "shape",
                         dims(tensor->shape, tensor->ndim), "strides", dims(tensor->strides, tensor->ndim), "dtype",
                         tensor->code, tensor->bits, tensor->lanes, "device", tensor->device_type, tensor->device_id);
}

static void *delete_in_new_thread(void *argument) {
    delete_taken(argument);
    return NULL;
}

// Calls the deleter "here" (attached), "detached" (this thread, without the interpreter) or in another "thread".
static PyObject *delete(PyObject *self, PyObject *arguments) {
    PyObject *handle;
    const char *where;
    if (!PyArg_ParseTuple(arguments, "Os", &handle, &where))
        return NULL;
    Taken *found = PyCapsule_GetPointer(handle, "taken");
    if (found == NULL)
        return NULL;
    int failed = 0;
    if (strcmp(where, "here") == 0) {
        delete_taken(found);
    } else {
        Py_BEGIN_ALLOW_THREADS
        if (strcmp(where, "detached") == 0) {
            delete_taken(found);
        } else {
            pthread_t thread;
            failed = pthread_create(&thread, NULL, delete_in_new_thread, found);
            if (!failed)
                pthread_join(thread, NULL);
        }
        Py_END_ALLOW_THREADS
    }
    if (failed)
        return PyErr_Format(PyExc_OSError, "pthread_create: %d", failed);
    Py_RETURN_NONE;
}

// ---- DLPack, as a producer ----

static atomic_int deletions;

typedef struct {
    union {
        Legacy legacy;
        Versioned versioned;
    } managed;
    int64_t shape[1], strides[1];
    double values[];
} Made;

static void free_made(Made *made) {
    atomic_fetch_add(&deletions, 1);
    free(made);
}

static void delete_legacy(Legacy *legacy) {
    free_made(legacy->context);
}

static void delete_versioned(Versioned *versioned) {
    free_made(versioned->context);
}

static void drop_unused(PyObject *capsule) {
    if (PyCapsule_IsValid(capsule, LEGACY)) {
        Legacy *legacy = PyCapsule_GetPointer(capsule, LEGACY);
        legacy->deleter(legacy);
    } else if (PyCapsule_IsValid(capsule, VERSIONED)) {
        Versioned *versioned = PyCapsule_GetPointer(capsule, VERSIONED);
        versioned->deleter(versioned);
    }
}

// A capsule of `count` doubles 0, 1, 2, ...; `flags` is -1 for an unversioned one.
static PyObject *make(PyObject *self, PyObject *arguments) {
    int count, flags;
    if (!PyArg_ParseTuple(arguments, "ii", &count, &flags))
        return NULL;
    Made *made = calloc(1, sizeof *made + (size_t)count * sizeof(double));
    if (made == NULL)
        return PyErr_NoMemory();
    made->shape[0] = count;
    made->strides[0] = 1;
    for (int i = 0; i < count; ++i)
        made->values[i] = i;
    Tensor tensor = {made->values, 1, 0, 1, 2, 64, 1, made->shape, made->strides, 0};
    if (flags < 0) {
        made->managed.legacy = (Legacy){tensor, made, delete_legacy};
        return PyCapsule_New(&made->managed.legacy, LEGACY, drop_unused);
    }
    made->managed.versioned = (Versioned){1, 3, made, delete_versioned, (uint64_t)flags, tensor};
    return PyCapsule_New(&made->managed.versioned, VERSIONED, drop_unused);
}

static PyObject *deleted(PyObject *self, PyObject *none) {
    return PyLong_FromLong(atomic_load(&deletions));
}

static PyMethodDef functions[] = {
    {"buffer", buffer, METH_VARARGS, "What a request for a buffer gives."},
    {"hold", hold, METH_VARARGS, "Keeps a buffer as long as the result lives."},
    {"held", held, METH_O, "What a kept buffer is."},
    {"sum", sum, METH_O, "The sum of doubles."},
    {"fill", fill, METH_VARARGS, "Writes a byte everywhere."},
    {"take", take, METH_O, "Consumes a DLPack capsule."},
    {"taken", taken, METH_O, "What was consumed; None after its deletion."},
    {"delete", delete, METH_VARARGS, "Calls the deleter: here, detached, or in a thread."},
    {"make", make, METH_VARARGS, "A DLPack capsule."},
    {"deleted", deleted, METH_NOARGS, "How many made tensors were deleted."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "c_consumer", NULL, -1, functions};

PyMODINIT_FUNC PyInit_c_consumer(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL || PyModule_AddIntMacro(module, PyBUF_SIMPLE) < 0 ||
        PyModule_AddIntMacro(module, PyBUF_WRITABLE) < 0 || PyModule_AddIntMacro(module, PyBUF_FORMAT) < 0 ||
        PyModule_AddIntMacro(module, PyBUF_ND) < 0 || PyModule_AddIntMacro(module, PyBUF_STRIDES) < 0 ||
        PyModule_AddIntMacro(module, PyBUF_C_CONTIGUOUS) < 0 || PyModule_AddIntMacro(module, PyBUF_F_CONTIGUOUS) < 0 ||
        PyModule_AddIntMacro(module, PyBUF_INDIRECT) < 0 || PyModule_AddIntMacro(module, PyBUF_FULL_RO) < 0 ||
        PyModule_AddIntMacro(module, PyBUF_FULL) < 0) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
