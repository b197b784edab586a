// The exchange API of DLPack in plain C, from both sides: whoever calls a table, and a library of arrays with one.

#include <Python.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
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

typedef struct Versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct Versioned *);
    uint64_t flags;
    Tensor tensor;
} Versioned;

typedef void SetError(void *, const char *, const char *);

typedef struct Table {
    uint32_t major, minor;
    struct Table *prev;
    int (*allocate)(Tensor *, Versioned **, void *, SetError *);
    int (*from_object)(void *, Versioned **);
    int (*to_object)(Versioned *, void **);
    int (*borrow)(void *, Tensor *);
    int (*stream)(int32_t, int32_t, void **);
} Table;

_Static_assert(sizeof(Tensor) == 48 && sizeof(Versioned) == 80 && sizeof(Table) == 56, "the layout of DLPack");

static const char TABLE[] = "dlpack_exchange_api", ATTRIBUTE[] = "__dlpack_c_exchange_api__";

static Table *table_of(PyObject *type) {
    PyObject *capsule = PyObject_GetAttrString(type, ATTRIBUTE);
    Table *table = capsule == NULL ? NULL : PyCapsule_GetPointer(capsule, TABLE);
    Py_XDECREF(capsule);
    return table;
}

// ---- Tensors of this module's own ----

static atomic_int deletions;

typedef struct {
    Versioned managed;
    int64_t shape[2], strides[2];
    double values[8];
} Made;

static void delete_made(Versioned *managed) {
    atomic_fetch_add(&deletions, 1);
    free(managed->context);
}

static PyObject *deleted(PyObject *self, PyObject *none) {
    return PyLong_FromLong(atomic_load(&deletions));
}

// ---- Handles: managed tensors that this module owns ----

static void drop_handle(PyObject *handle) {
    Versioned *managed = PyCapsule_GetPointer(handle, "managed");
    if (PyCapsule_GetContext(handle) == NULL && managed->deleter != NULL)
        managed->deleter(managed);
}

static PyObject *handle_of(Versioned *managed) {
    return PyCapsule_New(managed, "managed", drop_handle);
}

// The tensor of a handle that was not consumed.
static Versioned *owned(PyObject *handle) {
    Versioned *managed = PyCapsule_GetPointer(handle, "managed");
    if (managed != NULL && PyCapsule_GetContext(handle) != NULL) {
        PyErr_SetString(PyExc_ValueError, "the tensor was consumed");
        return NULL;
    }
    return managed;
}

// Two rows of doubles 0 to 7, with members of the struct replaced by name.
static PyObject *make(PyObject *self, PyObject *none, PyObject *edits) {
    Made *made = calloc(1, sizeof *made);
    if (made == NULL)
        return PyErr_NoMemory();
    for (int i = 0; i < 8; ++i)
        made->values[i] = i;
    made->shape[0] = 2;
    made->shape[1] = made->strides[0] = 4;
    made->strides[1] = 1;
    Tensor tensor = {made->values, 1, 0, 2, 2, 64, 1, made->shape, made->strides, 0};
    made->managed = (Versioned){1, 3, made, delete_made, 0, tensor};
    PyObject *name, *value;
    for (Py_ssize_t at = 0; edits != NULL && PyDict_Next(edits, &at, &name, &value);) {
        const char *member = PyUnicode_AsUTF8(name);
        long long number = PyLong_AsLongLong(value);
        if (member == NULL || PyErr_Occurred())
            goto failed;
        Tensor *edited = &made->managed.tensor;
        if (strcmp(member, "major") == 0)
            made->managed.major = (uint32_t)number;
        else if (strcmp(member, "flags") == 0)
            made->managed.flags = (uint64_t)number;
        else if (strcmp(member, "data") == 0)
            edited->data = (void *)(intptr_t)number;
        else if (strcmp(member, "device_type") == 0)
            edited->device_type = (int32_t)number;
        else if (strcmp(member, "ndim") == 0)
            edited->ndim = (int32_t)number;
        else if (strcmp(member, "bits") == 0)
            edited->bits = (uint8_t)number;
        else if (strcmp(member, "shape") == 0)
            edited->shape = (int64_t *)(intptr_t)number;
        else if (strcmp(member, "rows") == 0)
            made->shape[0] = number;
        else if (strcmp(member, "byte_offset") == 0)
            edited->byte_offset = (uint64_t)number;
        else {
            PyErr_SetObject(PyExc_KeyError, name);
            goto failed;
        }
    }
    return handle_of(&made->managed);
failed:
    free(made);
    return NULL;
}

static PyObject *dims(const int64_t *values, int count) {
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple != NULL && i < count; ++i)
        PyTuple_SET_ITEM(tuple, i, PyLong_FromLongLong(values[i]));
    return tuple;
}

static PyObject *described(const Tensor *tensor) {
    return Py_BuildValue("{s:n,s:n,s:N,s:N,s:(iii),s:(ii)}", "data", (Py_ssize_t)tensor->data, "byte_offset",
                         (Py_ssize_t)tensor->byte_offset, "shape", dims(tensor->shape, tensor->ndim), "strides",
                         dims(tensor->strides, tensor->ndim), "dtype", tensor->code, tensor->bits, tensor->lanes,
                         "device", tensor->device_type, tensor->device_id);
}

static PyObject *describe(PyObject *self, PyObject *handle) {
    Versioned *managed = owned(handle);
    if (managed == NULL)
        return NULL;
    PyObject *tensor = described(&managed->tensor);
    return tensor == NULL ? NULL
                          : Py_BuildValue("((II)KN)", managed->major, managed->minor,
                                          (unsigned long long)managed->flags, tensor);
}

static void *delete_here(void *managed) {
    ((Versioned *)managed)->deleter(managed);
    return NULL;
}

// Calls the deleter in a thread that Python does not know, while this one is detached.
static PyObject *delete_in_thread(PyObject *self, PyObject *handle) {
    Versioned *managed = owned(handle);
    pthread_t thread;
    if (managed == NULL || PyCapsule_SetContext(handle, managed) < 0)
        return NULL;
    int failed = 0;
    Py_BEGIN_ALLOW_THREADS
    failed = pthread_create(&thread, NULL, delete_here, managed);
    if (!failed)
        pthread_join(thread, NULL);
    Py_END_ALLOW_THREADS
    if (failed)
        return PyErr_Format(PyExc_OSError, "pthread_create: %d", failed);
    Py_RETURN_NONE;
}

// ---- Calling a table ----

static PyObject *slots(PyObject *self, PyObject *type) {
    Table *table = table_of(type);
    if (table == NULL)
        return NULL;
    int filled = (table->allocate != NULL) + (table->from_object != NULL) + (table->to_object != NULL) +
                 (table->borrow != NULL) + (table->stream != NULL);
    return Py_BuildValue("((II)iO)", table->major, table->minor, filled, table->prev == NULL ? Py_False : Py_True);
}

// A function that fails sets an exception, and one that succeeds does not.
static int failed(int status) {
    if (status == 0 && !PyErr_Occurred())
        return 0;
    if (status == 0 || !PyErr_Occurred()) {
        PyErr_Clear();
        PyErr_Format(PyExc_SystemError, "status %d %s an exception", status, status == 0 ? "with" : "without");
    }
    return 1;
}

// from_object(type, object, out=True)
static PyObject *from_object(PyObject *self, PyObject *arguments) {
    PyObject *type, *object = NULL;
    int place = 1;
    if (!PyArg_ParseTuple(arguments, "OO|p", &type, &object, &place))
        return NULL;
    Table *table = table_of(type);
    Versioned *managed = NULL;
    if (table == NULL || failed(table->from_object(object == Py_None ? NULL : object, place ? &managed : NULL)))
        return NULL;
    return handle_of(managed);
}

// to_object(type, handle, out=True); a handle of None is NULL.
static PyObject *to_object(PyObject *self, PyObject *arguments) {
    PyObject *type, *handle;
    int place = 1;
    if (!PyArg_ParseTuple(arguments, "OO|p", &type, &handle, &place))
        return NULL;
    Table *table = table_of(type);
    Versioned *managed = handle == Py_None ? NULL : owned(handle);
    void *object = NULL;
    if (table == NULL || PyErr_Occurred() || failed(table->to_object(managed, place ? &object : NULL)))
        return NULL;
    if (PyCapsule_SetContext(handle, managed) < 0)
        return NULL;
    return object;
}

static PyObject *borrow(PyObject *self, PyObject *arguments) {
    PyObject *type, *object;
    int place = 1;
    if (!PyArg_ParseTuple(arguments, "OO|p", &type, &object, &place))
        return NULL;
    Table *table = table_of(type);
    Tensor tensor;
    memset(&tensor, 0xff, sizeof tensor);
    if (table == NULL || failed(table->borrow(object == Py_None ? NULL : object, place ? &tensor : NULL)))
        return NULL;
    return described(&tensor);
}

static PyObject *stream(PyObject *self, PyObject *arguments) {
    PyObject *type;
    int device_type, device_id, place = 1;
    if (!PyArg_ParseTuple(arguments, "Oii|p", &type, &device_type, &device_id, &place))
        return NULL;
    Table *table = table_of(type);
    void *current = &table;
    if (table == NULL || failed(table->stream(device_type, device_id, place ? &current : NULL)))
        return NULL;
    return PyLong_FromVoidPtr(current);
}

typedef struct {
    Table *table;
    Tensor prototype;
    Versioned *managed;
    SetError *report;
    int status;
    char kind[32], message[256];
} Allocation;

static void report(void *context, const char *kind, const char *message) {
    Allocation *allocation = context;
    strncpy(allocation->kind, kind, sizeof allocation->kind - 1);
    strncpy(allocation->message, message, sizeof allocation->message - 1);
}

static void *allocate_here(void *argument) {
    Allocation *allocation = argument;
    allocation->status = allocation->table->allocate(&allocation->prototype, &allocation->managed, allocation,
                                                     allocation->report);
    return NULL;
}

// allocate(type, (code, bits, lanes), shape, device_type, reported): in a thread that is not attached.
static PyObject *allocate(PyObject *self, PyObject *arguments) {
    PyObject *type, *shape;
    int code, bits, lanes, device_type, reported;
    int64_t extents[8];
    if (!PyArg_ParseTuple(arguments, "O(iii)O!ip", &type, &code, &bits, &lanes, &PyTuple_Type, &shape, &device_type,
                          &reported))
        return NULL;
    Py_ssize_t ndim = PyTuple_GET_SIZE(shape);
    for (Py_ssize_t i = 0; i < ndim && i < 8; ++i)
        extents[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape, i));
    Allocation allocation = {.table = table_of(type), .report = reported ? report : NULL};
    if (allocation.table == NULL || PyErr_Occurred())
        return NULL;
    Tensor prototype = {NULL, device_type, 0, (int32_t)ndim, (uint8_t)code, (uint8_t)bits, (uint16_t)lanes, extents};
    allocation.prototype = prototype;
    pthread_t thread;
    int unstarted = 0;
    Py_BEGIN_ALLOW_THREADS
    unstarted = pthread_create(&thread, NULL, allocate_here, &allocation);
    if (!unstarted)
        pthread_join(thread, NULL);
    Py_END_ALLOW_THREADS
    if (unstarted)
        return PyErr_Format(PyExc_OSError, "pthread_create: %d", unstarted);
    if (allocation.status == 0)
        return handle_of(allocation.managed);
    return Py_BuildValue("(iss)", allocation.status, allocation.kind, allocation.message);
}

// ---- A library of arrays with a table ----

typedef struct {
    PyObject_HEAD
    Versioned *managed;
} Array;

// What the table's function does with its calls, after so many that go well.
typedef enum { MAKE, FAIL, FAIL_DELETED, FAIL_SILENTLY, INTERRUPT, NOTHING, OTHER } Behaviour;

static Behaviour behaviour;
static int good_calls, calls;
static PyTypeObject *made_type;

static void drop_array(PyObject *object) {
    Versioned *managed = ((Array *)object)->managed;
    PyTypeObject *type = Py_TYPE(object);
    // As torch does: detached.
    Py_BEGIN_ALLOW_THREADS
    if (managed != NULL && managed->deleter != NULL)
        managed->deleter(managed);
    Py_END_ALLOW_THREADS
    type->tp_free(object);
    Py_DECREF(type);
}

static PyObject *array_of(PyTypeObject *type, Versioned *managed) {
    Array *array = (Array *)type->tp_alloc(type, 0);
    if (array != NULL)
        array->managed = managed;
    return (PyObject *)array;
}

static int library_to_object(Versioned *managed, void **out) {
    ++calls;
    if (behaviour != MAKE && good_calls-- <= 0) {
        switch (behaviour) {
        case FAIL_DELETED:
            managed->deleter(managed);
            // fall through
        case FAIL:
            PyErr_SetString(PyExc_RuntimeError, "refused by the table");
            return -1;
        case INTERRUPT:
            PyErr_SetNone(PyExc_KeyboardInterrupt);
            return -1;
        case NOTHING:
            managed->deleter(managed);
            *out = NULL;
            return 0;
        case OTHER:
            managed->deleter(managed);
            *out = PyLong_FromLong(7);
            return 0;
        default:
            return -1;
        }
    }
    *out = array_of(made_type, managed);
    return *out == NULL ? -1 : 0;
}

static int unused_allocate(Tensor *a, Versioned **b, void *c, SetError *d) { return -1; }
static int unused_from_object(void *a, Versioned **b) { return -1; }
static int unused_stream(int32_t a, int32_t b, void **c) { return -1; }

static PyObject *behave(PyObject *self, PyObject *arguments) {
    int chosen;
    if (!PyArg_ParseTuple(arguments, "ii", &chosen, &good_calls))
        return NULL;
    behaviour = (Behaviour)chosen;
    calls = 0;
    Py_RETURN_NONE;
}

static PyObject *table_calls(PyObject *self, PyObject *none) {
    return PyLong_FromLong(calls);
}

static PyObject *array_address(PyObject *self, void *unused) {
    return PyLong_FromVoidPtr(((Array *)self)->managed->tensor.data);
}

static PyObject *array_rows(PyObject *self, void *unused) {
    return PyLong_FromLongLong(((Array *)self)->managed->tensor.shape[0]);
}

static PyGetSetDef array_members[] = {{"address", array_address}, {"rows", array_rows}, {NULL}};
static PyType_Slot array_slots[] = {{Py_tp_dealloc, drop_array}, {Py_tp_getset, array_members}, {0, NULL}};
static PyType_Spec array_spec = {"exchange_arrays.Array", sizeof(Array), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                                 array_slots};

// from_dlpack of a library, bound to the type of its arrays.
static PyObject *from_dlpack(PyObject *type, PyObject *tensor) {
    PyObject *none = PyTuple_New(0), *keywords = Py_BuildValue("{s:(ii)}", "max_version", 1, 3);
    PyObject *method = PyObject_GetAttrString(tensor, "__dlpack__");
    PyObject *capsule = method == NULL ? NULL : PyObject_Call(method, none, keywords), *array = NULL;
    Versioned *managed = capsule == NULL ? NULL : PyCapsule_GetPointer(capsule, "dltensor_versioned");
    if (managed != NULL && managed->tensor.bits == 8)
        PyErr_SetString(PyExc_TypeError, "no bytes, please");
    else if (managed != NULL && PyCapsule_SetName(capsule, "used_dltensor_versioned") == 0)
        array = array_of((PyTypeObject *)type, managed);
    Py_XDECREF(none);
    Py_XDECREF(keywords);
    Py_XDECREF(method);
    Py_XDECREF(capsule);
    return array;
}

static PyMethodDef from_dlpack_method = {"from_dlpack", from_dlpack, METH_O, "Makes an array."};

// A function of a library that makes arrays of this type.
static PyObject *function_of(PyObject *self, PyObject *type) {
    PyObject *name = PyUnicode_FromString("exchange_arrays");
    PyObject *function = name == NULL ? NULL : PyCFunction_NewEx(&from_dlpack_method, type, name);
    Py_XDECREF(name);
    return function;
}

// The tables that a library may have.
static Table good, newer, endless, older, incomplete[3];

static PyObject *library_capsule(const char *kind) {
    static const char other_name[] = "another";
    static uint64_t unaligned[9];
    good = (Table){1, 3, NULL, unused_allocate, unused_from_object, library_to_object, NULL, unused_stream};
    newer = (Table){.major = 2, .prev = &good};
    endless = (Table){.major = 2, .prev = &endless};
    older = good;
    older.major = 0;
    incomplete[0] = incomplete[1] = incomplete[2] = good;
    incomplete[0].allocate = NULL;
    incomplete[1].to_object = NULL;
    incomplete[2].stream = NULL;
    if (strcmp(kind, "good") == 0)
        return PyCapsule_New(&good, TABLE, NULL);
    if (strcmp(kind, "newer") == 0)
        return PyCapsule_New(&newer, TABLE, NULL);
    if (strcmp(kind, "endless") == 0)
        return PyCapsule_New(&endless, TABLE, NULL);
    if (strcmp(kind, "older") == 0)
        return PyCapsule_New(&older, TABLE, NULL);
    if (strcmp(kind, "no allocator") == 0)
        return PyCapsule_New(&incomplete[0], TABLE, NULL);
    if (strcmp(kind, "no maker") == 0)
        return PyCapsule_New(&incomplete[1], TABLE, NULL);
    if (strcmp(kind, "no stream") == 0)
        return PyCapsule_New(&incomplete[2], TABLE, NULL);
    if (strcmp(kind, "misnamed") == 0)
        return PyCapsule_New(&good, other_name, NULL);
    if (strcmp(kind, "an address") == 0)
        return PyLong_FromVoidPtr(&good);
    if (strcmp(kind, "misaligned") == 0) {
        memcpy((char *)unaligned + 1, &good, sizeof good);
        return PyCapsule_New((char *)unaligned + 1, TABLE, NULL);
    }
    return PyErr_Format(PyExc_ValueError, "%s", kind);
}

// A new module with a new type and a new function; `kind` is that of its table.
static PyObject *library(PyObject *self, PyObject *kind) {
    const char *text = PyUnicode_AsUTF8(kind);
    PyObject *module = PyModule_New("exchange_arrays"), *type = PyType_FromSpec(&array_spec);
    PyObject *capsule = text == NULL ? NULL : library_capsule(text);
    PyObject *function = type == NULL ? NULL : function_of(NULL, type);
    if (module == NULL || type == NULL || capsule == NULL || function == NULL ||
        PyObject_SetAttrString(type, ATTRIBUTE, capsule) < 0 || PyModule_AddObjectRef(module, "Array", type) < 0 ||
        PyModule_AddObjectRef(module, "from_dlpack", function) < 0)
        Py_CLEAR(module);
    else
        made_type = (PyTypeObject *)type;
    Py_XDECREF(type);
    Py_XDECREF(capsule);
    Py_XDECREF(function);
    return module;
}

static PyMethodDef functions[] = {
    {"make", (PyCFunction)(void (*)(void))make, METH_VARARGS | METH_KEYWORDS, "A managed tensor, edited."},
    {"describe", describe, METH_O, "Version, flags and tensor."},
    {"delete_in_thread", delete_in_thread, METH_O, "Calls the deleter in a thread."},
    {"deleted", deleted, METH_NOARGS, "How many made tensors were deleted."},
    {"slots", slots, METH_O, "Version, functions and whether there is an older table."},
    {"from_object", from_object, METH_VARARGS, "managed_tensor_from_py_object_no_sync"},
    {"to_object", to_object, METH_VARARGS, "managed_tensor_to_py_object_no_sync"},
    {"borrow", borrow, METH_VARARGS, "dltensor_from_py_object_no_sync"},
    {"stream", stream, METH_VARARGS, "current_work_stream"},
    {"allocate", allocate, METH_VARARGS, "managed_tensor_allocator"},
    {"make_library", library, METH_O, "A library of arrays."},
    {"function_of", function_of, METH_O, "A from_dlpack that makes arrays of a type."},
    {"behave", behave, METH_VARARGS, "What the library's table does, after how many good calls."},
    {"table_calls", table_calls, METH_NOARGS, "How often the library's table was called."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "exchange", NULL, -1, functions};

PyMODINIT_FUNC PyInit_exchange(void) {
    PyObject *module = PyModule_Create(&definition);
    const char *behaviours[] = {"MAKE", "FAIL", "FAIL_DELETED", "FAIL_SILENTLY", "INTERRUPT", "NOTHING", "OTHER"};
    for (int i = 0; module != NULL && i < 7; ++i) {
        if (PyModule_AddIntConstant(module, behaviours[i], i) < 0)
            Py_CLEAR(module);
    }
    return module;
}
