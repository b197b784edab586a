"""`__dlpack__` and `__dlpack_device__`, to the letter of the array API standard 2024.12, read from the C struct."""

import arrow_dlpack as ad
import numpy as np
import producers
import pyarrow as pa
import pytest
from producers import IS_COPIED, READ_ONLY, read_dlpack
from support import NUMBERS, flags

SOURCE = pa.array([1, 2, 3])
DTYPES = {
    "bool": (6, 8),
    **{f"int{bits}": (0, bits) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (1, bits) for bits in (8, 16, 32, 64)},
    **{f"float{bits}": (2, bits) for bits in (16, 32, 64)},
    "complex64": (5, 64),
    "complex128": (5, 128),
}

# Each of both classes that speak DLPack, over read-only memory, and one over memory that may be written.
READ_ONLY_MEMORY = {"Tensor": lambda: ad.to_tensor(SOURCE), "Array": lambda: ad.from_arrow(SOURCE)}
EVERY = {**READ_ONLY_MEMORY, "writable": lambda: ad.from_dlpack(np.arange(1, 4))}
every = pytest.mark.parametrize("make", EVERY.values(), ids=EVERY)
read_only = pytest.mark.parametrize("make", READ_ONLY_MEMORY.values(), ids=READ_ONLY_MEMORY)


def contents(tensor: producers.DLTensor) -> list[int]:
    values = np.ctypeslib.as_array((producers.c_int64 * 3).from_address(tensor.data))
    return values.tolist()


@every
def test_the_device(make):
    assert make().__dlpack_device__() == (1, 0)
    assert type(make().__dlpack_device__()) is tuple
    _, tensor = held = read_dlpack(capsule := make().__dlpack__(max_version=(1, 0)))
    assert (tensor.device_type, tensor.device_id) == (1, 0)
    del held, capsule


@every
@pytest.mark.parametrize("version", [(1, 0), (1, 3), (1, 99), (2, 0), (9, 9)])
def test_versions_from_1_on_give_a_versioned_capsule(make, version: tuple[int, int]):
    capsule = make().__dlpack__(max_version=version)
    assert producers.capsule_name(capsule) == b"dltensor_versioned"
    managed, tensor = read_dlpack(capsule)
    # The producer's own version: the consumer's is a hint.
    assert (managed.major, managed.minor) == (1, 3)
    assert managed.deleter
    assert contents(tensor) == [1, 2, 3]


@every
@pytest.mark.parametrize("keywords", [{}, {"max_version": (1, 3)}], ids=["legacy", "versioned"])
def test_the_context_is_not_null(make, keywords):
    """PaddlePaddle calls no deleter where it is."""
    capsule = make().__dlpack__(**keywords)
    assert read_dlpack(capsule)[0].manager_ctx


@every
@pytest.mark.parametrize(
    "keywords", [{}, {"max_version": None}, {"max_version": (0, 0)}, {"max_version": (0, 8)}], ids=str
)
def test_older_versions_give_an_unversioned_capsule(make, keywords):
    capsule = make().__dlpack__(**keywords)
    assert producers.capsule_name(capsule) == b"dltensor"
    managed, tensor = read_dlpack(capsule)
    assert managed.deleter
    assert contents(tensor) == [1, 2, 3]


@every
@pytest.mark.parametrize(
    "keywords",
    [
        {"max_version": 1},
        {"max_version": "1.0"},
        {"max_version": (1,)},
        {"max_version": (1, 0, 0)},
        {"max_version": (1.0, 0)},
        {"max_version": ("1", "0")},
        {"max_version": (-1, 0)},
        {"max_version": (2**40, 0)},
        {"max_version": [1, 0]},
        {"dl_device": 1},
        {"dl_device": "cpu"},
        {"dl_device": (1,)},
        {"dl_device": (1, 0, 0)},
        {"dl_device": ("a", "b")},
        {"copy": 1},
        {"copy": "never"},
        {"nonsense": None},
    ],
    ids=str,
)
def test_type_errors_are_for_wrong_signatures(make, keywords):
    with pytest.raises(TypeError):
        make().__dlpack__(**keywords)


@every
def test_all_are_keywords(make):
    with pytest.raises(TypeError):
        make().__dlpack__(None)


@every
@pytest.mark.parametrize("version", [None, (1, 0)])
@pytest.mark.parametrize("stream", [0, 1, 2, 12345, "x", 1.5, ...], ids=repr)
def test_the_cpu_has_no_streams(make, version, stream):
    with pytest.raises(BufferError, match="stream"):
        make().__dlpack__(stream=stream, max_version=version)


@every
@pytest.mark.parametrize("version", [None, (1, 0)])
def test_no_stream_and_no_synchronisation_are_fine(make, version):
    for stream in (None, -1):
        assert make().__dlpack__(stream=stream, max_version=version) is not None


@every
@pytest.mark.parametrize("version", [None, (1, 0)])
def test_devices(make, version):
    assert make().__dlpack__(dl_device=(1, 0), max_version=version) is not None
    assert make().__dlpack__(dl_device=None, max_version=version) is not None
    for device in [(2, 0), (3, 0), (13, 0), (99, 0), (1 << 31, 0), (2, 1 << 40), (-1, -1)]:
        with pytest.raises(BufferError):
            make().__dlpack__(dl_device=device, max_version=version)


@every
def test_an_enum_is_an_integer(make):
    import enum

    Device = enum.IntEnum("Device", {"CPU": 1})
    assert make().__dlpack__(dl_device=(Device.CPU, 0), max_version=(Device.CPU, 0)) is not None


class TestFlags:
    def test_views_of_arrow_are_read_only(self):
        for make in READ_ONLY_MEMORY.values():
            assert flags(make()) == READ_ONLY
            assert flags(make(), copy=False) == READ_ONLY

    def test_views_of_writable_memory_are_not(self):
        assert flags(ad.from_dlpack(np.arange(3))) == 0
        assert flags(ad.to_tensor(SOURCE, writable=True)) == 0

    @every
    def test_copies_belong_to_the_consumer(self, make):
        source = make()
        assert flags(source, copy=True) == IS_COPIED
        one, other = (source.__dlpack__(max_version=(1, 0), copy=True) for _ in range(2))
        assert len({read_dlpack(one)[1].data, read_dlpack(other)[1].data, SOURCE.buffers()[1].address}) == 3

    def test_what_a_dunder_has_to_copy_belongs_to_the_consumer(self):
        bits = ad.from_arrow(pa.array([True, False]))
        with ad.track_copies() as log:
            assert flags(bits) == IS_COPIED
        assert log.bytes == 2
        with ad.track_copies() as log:
            assert flags(bits, copy=True) == IS_COPIED
        assert log.bytes == 2, "copied once"
        with pytest.raises(BufferError):
            bits.__dlpack__(max_version=(1, 0), copy=False)

    def test_a_copy_that_others_can_see_is_not_the_consumers(self):
        # The tensor was made by a copy, and is still there.
        tensor = ad.to_tensor(SOURCE, copy=True)
        assert flags(tensor) == 0


class TestLegacy:
    """An unversioned capsule cannot say that memory is read-only."""

    def test_a_copy_by_default(self):
        for make in READ_ONLY_MEMORY.values():
            source = make()
            with ad.track_copies() as log:
                capsule = source.__dlpack__()
            _, tensor = read_dlpack(capsule)
            assert tensor.data != SOURCE.buffers()[1].address
            assert contents(tensor) == [1, 2, 3]
            assert log.bytes == 24
            with pytest.raises(ad.CopyError, match="unversioned"):
                source.__dlpack__(copy=False)
            with pytest.raises(BufferError):
                source.__dlpack__(copy=False, max_version=(0, 5))

    @pytest.mark.parametrize("copy", [None, False])
    def test_a_view_where_the_caller_vouches(self, copy):
        tensor = ad.to_tensor(SOURCE, legacy="view")
        with ad.track_copies() as log:
            capsule = tensor.__dlpack__(copy=copy)
        assert read_dlpack(capsule)[1].data == SOURCE.buffers()[1].address
        assert len(log) == 0

    @pytest.mark.parametrize("copy", [None, False])
    def test_an_error_where_that_was_asked_for(self, copy):
        tensor = ad.to_tensor(SOURCE, legacy="error")
        with pytest.raises(BufferError, match="unversioned"):
            tensor.__dlpack__(copy=copy)
        assert flags(tensor) == READ_ONLY

    @pytest.mark.parametrize("legacy", ["copy", "view", "error"])
    def test_a_copy_on_request_under_any_policy(self, legacy: str):
        capsule = ad.to_tensor(SOURCE, legacy=legacy).__dlpack__(copy=True)
        assert read_dlpack(capsule)[1].data != SOURCE.buffers()[1].address

    @pytest.mark.parametrize("legacy", ["copy", "view", "error"])
    def test_writable_memory_is_viewed_under_any_policy(self, legacy: str):
        tensor = ad.to_tensor(SOURCE, writable=True, legacy=legacy)
        with ad.track_copies() as log:
            assert tensor.__dlpack__(copy=False) is not None
        assert len(log) == 0

    def test_policies_are_three(self):
        with pytest.raises(ValueError, match="legacy"):
            ad.to_tensor(SOURCE, legacy="yes")
        for tensor in ad.to_tensors(pa.record_batch({"x": SOURCE}), legacy="error").values():
            with pytest.raises(BufferError):
                tensor.__dlpack__()


LAYOUTS = [
    ((), ()),
    ((3,), (1,)),
    ((2, 3), (3, 1)),
    ((2, 3, 4), (12, 4, 1)),
    ((1, 1), (1, 1)),
    ((0,), (1,)),
    ((2, 0, 3), (3, 3, 1)),
]


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize(("shape", "strides"), LAYOUTS, ids=str)
def test_shape_and_strides_are_always_given(versioned: bool, shape, strides):
    tensor = ad.from_dlpack(np.zeros(shape))
    capsule = tensor.__dlpack__(max_version=(1, 0) if versioned else None)
    _, struct = read_dlpack(capsule)
    assert struct.ndim == len(shape)
    assert producers.dims(struct.shape, len(shape)) == shape == tensor.shape
    assert producers.dims(struct.strides, len(shape)) == strides == tensor.strides
    assert struct.byte_offset == 0
    assert bool(struct.data) == (0 not in shape), "data is NULL at size 0, and only there"


def test_data_points_to_the_first_element():
    source = np.arange(20, dtype="int16")
    for view in (source[3:], source[::-1], source[2::5]):
        capsule = ad.from_dlpack(view).__dlpack__(max_version=(1, 0))
        _, struct = read_dlpack(capsule)
        assert (struct.data, struct.byte_offset) == (view.ctypes.data, 0)
    part = pa.array(range(20), pa.int16())[3:]
    capsule = ad.to_tensor(part).__dlpack__(max_version=(1, 0))
    _, struct = read_dlpack(capsule)
    assert (struct.data, struct.byte_offset) == (part.buffers()[1].address + 6, 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype: str):
    capsule = ad.from_dlpack(np.zeros(2, dtype)).__dlpack__(max_version=(1, 0))
    _, struct = read_dlpack(capsule)
    assert (struct.code, struct.bits, struct.lanes) == (*DTYPES[dtype], 1)


@pytest.mark.parametrize("dtype", ["bool", *NUMBERS])
@pytest.mark.parametrize("rows", [1, 3, 1000, 100_000])
def test_fresh_memory_is_aligned_to_64_bytes(dtype: str, rows: int):
    source = pa.array([0] * rows, pa.int8())
    kept = [ad.to_tensor(source, dtype=dtype, writable=True) for _ in range(3)]
    for tensor in kept:
        for capsule in (tensor.__dlpack__(max_version=(1, 0)), tensor.__dlpack__(max_version=(1, 0), copy=True)):
            assert read_dlpack(capsule)[1].data % 64 == 0


def test_signature():
    import inspect

    for cls in (ad.Tensor, ad.Array):
        parameters = inspect.signature(cls.__dlpack__).parameters
        assert list(parameters)[1:] == ["stream", "max_version", "dl_device", "copy"]
        assert {p.kind for name, p in parameters.items() if name != "self"} == {inspect.Parameter.KEYWORD_ONLY}
        assert all(p.default is None for name, p in parameters.items() if name != "self")


@pytest.mark.parametrize("source", [pa.array([1, None]), pa.array(["a"]), pa.nulls(2)], ids=str)
def test_what_has_no_tensor_is_a_buffer_error(source):
    with pytest.raises(BufferError):
        ad.from_arrow(source).__dlpack__(max_version=(1, 0))


@pytest.mark.parametrize("source", [pa.array([1, None]), pa.array(["a"]), pa.array([1], pa.decimal128(5, 2))], ids=str)
def test_remedies_say_whose_the_options_are(source):
    array = ad.from_arrow(source)
    with pytest.raises(ad.ConversionError) as raised:
        array.__dlpack__(max_version=(1, 0))
    with pytest.raises(ad.ConversionError) as of_function:
        ad.to_tensor(source)
    assert raised.value.remedy == f"{of_function.value.remedy} (the options are arrow_dlpack.to_tensor's)"
    with pytest.raises(ad.ConversionError) as raised:
        ad.from_arrow(pa.nulls(2)).__dlpack__(max_version=(1, 0))
    assert raised.value.remedy == "cast the column to a number type first"
    # `__dlpack__` itself has copy=.
    with pytest.raises(ad.CopyError) as raised:
        ad.from_arrow(pa.array([True])).__dlpack__(max_version=(1, 0), copy=False)
    assert raised.value.remedy == "pass copy=None to allow it"


@every
@pytest.mark.parametrize(
    ("keyword", "wrong"),
    [("copy", wrong) for wrong in (0, 1, "x", (), np.int8(1))]
    + [("max_version", wrong) for wrong in (1, "1.0", (1,), (1, "0"), [1, 0])]
    + [("dl_device", wrong) for wrong in (1, "cpu", (1,), (1, "0"), (1.5, 0), (True, 0), [1, 0])],
)
def test_arguments_of_wrong_types_are_named(make, keyword: str, wrong):
    with pytest.raises(TypeError, match=f"^{keyword} must be "):
        make().__dlpack__(**{keyword: wrong})


@every
def test_bools_of_numpy_are_bools(make):
    assert make().__dlpack__(copy=np.True_)
