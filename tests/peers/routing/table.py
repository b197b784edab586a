"""The suites, and every case that does not simply pass."""

from __future__ import annotations

from importlib.metadata import version

from routing.suite import Differs, Suite

STREAM = Differs(
    "a stream for data on the CPU is a BufferError, as any request that a device cannot meet",
    "stream must be None for data",
)
NO_CAST = Differs(
    "a type that cannot be had is a ValueError: a TypeError means a wrong signature in the protocols",
    "CastError: .*: no cast exists",
)
OWN_EXPORT = "asks for NumPy's own export"

# The newest NumPy left Python 3.11. It lets a dtype of one's own be registered for a pair of code and bits.
NUMPY_REGISTERS = tuple(map(int, version("numpy").split(".")[:2])) >= (2, 5)
REGISTRATION = {
    f"test_dlpack.py::TestRegisterDlpackDtype::{case}": "registers a dtype with NumPy, and makes no tensor"
    for case in ("test_register_bad_dlpack_tuple", "test_register_bad_code_or_bits", "test_register_idempotent")
    if NUMPY_REGISTERS
}
UNKNOWN_DTYPE = Differs(
    "a dtype of a code that DLPack does not define is refused: nobody else could read it",
    "UnsupportedTypeError: DLDataType with code 123",
)
REGISTERED = {"test_dlpack.py::TestRegisterDlpackDtype::test_buffererror_bad_dtype": UNKNOWN_DTYPE}

NUMPY_CONSUMER = Suite(
    name="numpy-consumer",
    folder="numpy/_core/tests",
    cases=("test_dlpack.py",),
    shim="numpy_consumer",
    at_least=77 if NUMPY_REGISTERS else 74,
    left_out=REGISTRATION
    | {
        f"test_dlpack.py::TestDLPack::{case}": OWN_EXPORT
        for case in (
            "test_dunder_dlpack_refcount",
            "test_dunder_dlpack_stream",
            "test_dunder_dlpack_copy",
            "test_dlpack_destructor_exception",
        )
    },
)

NUMPY_PRODUCER = Suite(
    name="numpy-producer",
    folder="numpy/_core/tests",
    cases=("test_dlpack.py",),
    shim="numpy_producer",
    at_least=81 if NUMPY_REGISTERS else 79,
    left_out=REGISTRATION,
    differs={
        **(REGISTERED if NUMPY_REGISTERS else {}),
        "test_dlpack.py::TestDLPack::test_dunder_dlpack_stream": STREAM,
        "test_dlpack.py::TestDLPack::test_dunder_dlpack_copy": Differs(
            "copy= of another type is a wrong signature: a TypeError, and not what the truth of an array raises",
            "is not an instance of 'bool'",
        ),
        "test_dlpack.py::TestDLPack::test_readonly": Differs(
            "legacy='copy' is the default: an unversioned capsule of read-only memory is a private copy, not an error",
            "DID NOT RAISE",
        ),
    },
)

PYARROW_DLPACK = Suite(
    name="pyarrow-dlpack",
    folder="pyarrow/tests",
    cases=("test_dlpack.py",),
    shim="pyarrow_data",
    at_least=124,
    differs={
        "test_dlpack.py::test_dlpack_legacy_capsule_immutable_tensor": Differs(
            "legacy='copy' is the default: an unversioned capsule of read-only memory is a private copy, not an error",
            "DID NOT RAISE NotImplementedError",
        ),
        "test_dlpack.py::test_dlpack_legacy_capsule_copy_not_supported": Differs(
            "copy= works for unversioned capsules too; copy=False is refused only where read-only memory needs a copy",
            "DID NOT RAISE BufferError|Actual message: 'an unversioned DLPack capsule cannot say that",
        ),
        "test_dlpack.py::test_dlpack_not_supported": Differs(
            "nulls are refused as a BufferError that names the way out: a TypeError would mean a wrong signature",
            "NullError: row 1: the column has nulls",
        ),
        "test_dlpack.py::test_fixed_shape_tensor_array_from_dlpack_not_first_major": Differs(
            "any strides become an array; those that cannot be viewed by a copy, which copy=False refuses",
            "DID NOT RAISE ArrowInvalid",
        ),
        "test_dlpack.py::test_array_from_dlpack_multi_dim_not_supported": Differs(
            "more than one dimension becomes a fixed-shape tensor array",
            "DID NOT RAISE ArrowInvalid",
        ),
        "test_dlpack.py::test_from_dlpack_no_dlpack_method": Differs(
            "an object without the protocol is a TypeError, as everywhere in Python",
            "TypeError: expected a tensor",
        ),
    },
    skips={"test_dlpack.py::test_dlpack_cuda_not_supported": "pyarrow.cuda"},
)

SCHEMA_ALONE = "a schema without data, which the package neither imports nor exports"

PYARROW_CFFI = Suite(
    name="pyarrow-cffi",
    folder="pyarrow/tests",
    cases=("test_cffi.py",),
    shim="pyarrow_data",
    at_least=18,
    differs={
        "test_cffi.py::test_roundtrip_reader_capsule": NO_CAST,
        "test_cffi.py::test_roundtrip_chunked_array_capsule_requested_schema": Differs(
            "whether strings fit int64 is up to the values: the stream is given, and a batch that does not fit fails",
            "DID NOT RAISE ValueError",
        ),
    },
    left_out={
        f"test_cffi.py::{case}": SCHEMA_ALONE
        for case in (
            "test_export_import_type",
            "test_export_import_field",
            "test_export_import_schema",
            "test_export_import_schema_with_extension",
            "test_export_import_schema_float_pointer",
            "test_roundtrip_schema_capsule",
        )
    },
)

# The cases of pyarrow's other files that use capsules.
PYARROW_CAPSULES = Suite(
    name="pyarrow-capsules",
    folder="pyarrow/tests",
    cases=(
        "test_array.py::test_c_array_protocol",
        "test_array.py::test_c_array_protocol_device_unsupported_keyword",
        "test_table.py::test_chunked_array_c_array_interface",
        "test_table.py::test_chunked_array_c_stream_interface",
        "test_table.py::test_recordbatch_c_array_interface",
        "test_table.py::test_recordbatch_c_array_interface_device_unsupported_keyword",
        "test_table.py::test_table_c_array_interface",
        "test_table.py::test_table_c_stream_interface",
        "test_ipc.py::test_record_batch_reader_from_arrow_stream",
        "test_dataset.py::test_scan_iterator",
    ),
    shim="pyarrow_data",
    at_least=12,
    differs={
        "test_table.py::test_table_c_stream_interface": NO_CAST,
        "test_ipc.py::test_record_batch_reader_from_arrow_stream": NO_CAST,
    },
)

PANDAS = Suite(
    name="pandas",
    folder="pandas/tests",
    cases=("series/test_arrow_interface.py", "frame/test_arrow_interface.py"),
    shim="pandas_data",
    at_least=11,
    differs={
        "test_arrow_interface.py::test_series_from_arrow_pyarrow_name": Differs(
            "pandas keeps the name of pyarrow's own columns only; no protocol method tells it",
            'Attribute "name" are different',
        ),
    },
)

# Buffers of the dataframe interchange protocol, which are DLPack producers of the oldest kind.
PANDAS_INTERCHANGE = Suite(
    name="pandas-interchange",
    folder="pandas/tests/interchange",
    cases=("test_impl.py::test_categorical_to_numpy_dlpack",),
    shim="numpy_consumer",
    at_least=1,
)

# A checkout, since it is in no package; the runner says so where there is none.
ARRAY_API = Suite(
    name="array-api-tests",
    folder="$ARRAY_API_TESTS",
    cases=("array_api_tests/test_dlpack.py",),
    shim="array_api",
    at_least=3,
    arguments=("--disable-deadline",),
    environment={
        "ARRAY_API_TESTS_MODULE": "exec('from routing.array_api import xp')",
        "ARRAY_API_TESTS_VERSION": "2024.12",
        # Its conftest.py has hooks of pytest-json-report.
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "",
    },
)

SUITES = (
    NUMPY_CONSUMER,
    NUMPY_PRODUCER,
    PYARROW_DLPACK,
    PYARROW_CFFI,
    PYARROW_CAPSULES,
    PANDAS,
    PANDAS_INTERCHANGE,
    ARRAY_API,
)
