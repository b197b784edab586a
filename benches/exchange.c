// The floor under "all columns of a batch as tensors of another library": nothing but its exchange table in a loop.

#include <Python.h>
#include <stdint.h>
#include <stdlib.h>

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

typedef struct {
    uint32_t major, minor;
    void *prev;
    int (*allocate)(Tensor *, Versioned **, void *, void (*)(void *, const char *, const char *));
    int (*from_object)(void *, Versioned **);
    int (*to_object)(Versioned *, void **);
    int (*borrow)(void *, Tensor *);
    int (*stream)(int32_t, int32_t, void **);
} Table;

_Static_assert(sizeof(Tensor) == 48 && sizeof(Versioned) == 80 && sizeof(Table) == 56, "the layout of DLPack");

typedef struct {
    Versioned managed;
    int64_t shape, stride;
} Block;

static void delete(Versioned *managed) { free(managed); }

// tensors(capsule, names, addresses, rows) -> dict: float32 columns of so many rows at these addresses.
static PyObject *tensors(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    if (count != 4 || !PyTuple_CheckExact(arguments[1]) || !PyTuple_CheckExact(arguments[2]))
        return PyErr_Format(PyExc_TypeError, "a capsule, two tuples and a count");
    Table *table = PyCapsule_GetPointer(arguments[0], "dlpack_exchange_api");
    int64_t rows = PyLong_AsLongLong(arguments[3]);
    PyObject *named = PyDict_New();
    if (PyErr_Occurred() || named == NULL)
        goto failed;
    Py_ssize_t columns = PyTuple_GET_SIZE(arguments[1]);
    for (Py_ssize_t i = 0; i < columns; ++i) {
        Block *block = malloc(sizeof *block);
        if (block == NULL) {
            PyErr_NoMemory();
            goto failed;
        }
        void *data = PyLong_AsVoidPtr(PyTuple_GET_ITEM(arguments[2], i));
        block->shape = rows;
        block->stride = 1;
        block->managed = (Versioned){
            .major = 1,
            .minor = 3,
            .deleter = delete,
            .flags = 1,
            .tensor = {data, 1, 0, 1, 2, 32, 1, &block->shape, &block->stride, 0},
        };
        void *tensor = NULL;
        if (table->to_object(&block->managed, &tensor) != 0) {
            free(block);
            goto failed;
        }
        int stored = PyDict_SetItem(named, PyTuple_GET_ITEM(arguments[1], i), tensor);
        Py_DECREF((PyObject *)tensor);
        if (stored != 0)
            goto failed;
    }
    return named;
failed:
    Py_XDECREF(named);
    return NULL;
}

static PyMethodDef methods[] = {{"tensors", (PyCFunction)(void (*)(void))tensors, METH_FASTCALL, NULL}, {NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "exchange_floor", NULL, -1, methods};

PyMODINIT_FUNC PyInit_exchange_floor(void) { return PyModule_Create(&module); }
