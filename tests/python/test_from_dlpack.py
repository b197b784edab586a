"""`from_dlpack` as the array API standard has it: what it asks producers, and what it does with their answers."""

import arrow_dlpack as ad
import numpy as np
import producers
import pyarrow as pa
import pytest
from producers import IS_COPIED, READ_ONLY, DLPack
from support import address


class Producer:
    """Speaks DLPack and remembers what it was asked for. `knows` are the keywords that it takes."""

    def __init__(self, knows=("max_version", "copy", "dl_device", "stream"), device=(1, 0), **fields) -> None:
        self.knows = knows
        self.device = device
        self.tensor = DLPack(**fields)
        self.calls: list[dict] = []

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **keywords):
        self.calls.append(keywords)
        unknown = set(keywords) - set(self.knows)
        if unknown:
            raise TypeError(f"unexpected keyword arguments {sorted(unknown)}")
        return self.tensor.capsule()


VERSION = {"max_version": (1, 3)}


@pytest.mark.parametrize(
    ("keywords", "asked"),
    [
        ({}, VERSION),
        ({"copy": None, "device": None}, VERSION),
        ({"copy": False}, VERSION | {"copy": False}),
        # The copy is made here, whatever the producer understands.
        ({"copy": True}, VERSION),
        ({"device": "cpu"}, VERSION),
        ({"device": (1, 0)}, VERSION),
        ({"device": ad.Device("cpu"), "copy": False}, VERSION | {"copy": False}),
    ],
    ids=str,
)
def test_keywords_are_passed_where_they_say_something(keywords, asked):
    source = Producer()
    tensor = ad.from_dlpack(source, **keywords)
    assert source.calls == [asked]
    assert np.from_dlpack(tensor).tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("knows", "copy", "calls"),
    [
        (("max_version", "dl_device"), False, [VERSION | {"copy": False}, VERSION]),
        (("max_version",), False, [VERSION | {"copy": False}, VERSION]),
        (("stream",), False, [VERSION | {"copy": False}, VERSION, {}]),
        (("stream",), None, [VERSION, {}]),
        ((), None, [VERSION, {}]),
    ],
    ids=str,
)
def test_producers_of_older_protocols(knows, copy, calls):
    source = Producer(knows, versioned="max_version" in knows)
    tensor = ad.from_dlpack(source, copy=copy)
    assert source.calls == calls
    assert address(tensor) == source.tensor.address


def test_a_transfer_is_asked_for_where_it_is_needed():
    # Advertised elsewhere, and given where it was asked for.
    source = Producer(device=(14, 0))
    tensor = ad.from_dlpack(source, device="cpu")
    assert source.calls == [VERSION | {"dl_device": (1, 0)}]
    assert str(tensor.device) == "cpu"


def test_an_error_of_the_producer_is_not_retried():
    class Fails:
        calls = 0

        def __dlpack__(self, **keywords):
            type(self).calls += 1
            raise BufferError("not today")

    with pytest.raises(BufferError, match="not today"):
        ad.from_dlpack(Fails(), copy=False)
    assert Fails.calls == 1


def test_a_type_error_to_the_end_is_the_producers():
    class Fails:
        def __dlpack__(self, **keywords):
            raise TypeError(f"no tensor in here, with {sorted(keywords)}")

    with pytest.raises(TypeError, match="no tensor in here"):
        ad.from_dlpack(Fails(), copy=False)


class RefusedError(TypeError):
    """Of a library's own, such as pyarrow's `ArrowTypeError`."""


def test_a_type_error_of_a_class_of_its_own_is_not_about_keywords():
    calls = []

    class Refusing:
        def __dlpack__(self, **keywords):
            calls.append(keywords)
            raise RefusedError("no nulls")

    with pytest.raises(RefusedError, match="no nulls"):
        ad.from_dlpack(Refusing())
    assert calls == [VERSION]


def test_an_error_of_the_retry_has_the_first_as_its_cause():
    class Refusing:
        def __dlpack__(self, **keywords):
            if keywords:
                raise TypeError("no quantized tensors")
            raise RuntimeError("no old capsules") from own

    own = None
    with pytest.raises(RuntimeError, match="no old capsules") as raised:
        ad.from_dlpack(Refusing())
    assert str(raised.value.__cause__) == "no quantized tensors"
    own = ValueError("of its own")
    with pytest.raises(RuntimeError, match="no old capsules") as raised:
        ad.from_dlpack(Refusing())
    assert raised.value.__cause__ is own


@pytest.mark.parametrize("count", [1, 2])
def test_exceptions_that_are_raised_again_are_no_causes_of_themselves(count: int):
    errors = [TypeError(f"no tensor {number}") for number in range(count)]
    calls = 0

    class Refusing:
        def __dlpack__(self, **keywords):
            nonlocal calls
            calls += 1
            raise errors[calls % count]

    with pytest.raises(TypeError, match="no tensor") as raised:
        ad.from_dlpack(Refusing(), copy=False)
    found: list[BaseException] = []
    error: BaseException | None = raised.value
    while error is not None:
        assert error not in found
        found.append(error)
        error = error.__cause__
    assert len(found) <= count


def test_a_class_may_say_by_none_that_it_has_no_protocol():
    class Silent(np.ndarray):
        __dlpack__ = None

    with pytest.raises(TypeError, match="__dlpack__"):
        ad.from_dlpack(np.arange(3).view(Silent))

    class OnHost:
        __arrow_c_device_array__ = None

        def __arrow_c_array__(self, requested_schema=None):
            return pa.array([1, 2]).__arrow_c_array__(requested_schema)

    assert pa.array(ad.from_arrow(OnHost())).to_pylist() == [1, 2]


def test_the_one_cpu_needs_no_ordinal():
    # As paddle answers.
    assert ad.from_dlpack(Producer(device=(1, None)), device="cpu").device == ad.Device("cpu")


@pytest.mark.parametrize("answer", [None, 1, (1,), (1, 0, 0), ("cpu", 0), (14, None), (None, 0), "cpu"], ids=repr)
def test_a_device_is_two_integers(answer):
    source = Producer(device=answer)
    source.tensor.expected = 0
    with pytest.raises(TypeError, match="__dlpack_device__"):
        ad.from_dlpack(source)
    assert source.calls == []


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "rocm:1", (2, 0), (14, 0)], ids=repr)
@pytest.mark.parametrize("copy", [None, False])
def test_another_device_is_a_clear_error(device, copy):
    with pytest.raises(BufferError, match=r"device|is on"):
        ad.from_dlpack(np.arange(3), device=device, copy=copy)


@pytest.mark.parametrize("device", ["", "gpu", "cpu:x", 3, ..., (1,), (1, "x"), ("cpu", 0)], ids=repr)
def test_what_is_no_device(device):
    with pytest.raises(ValueError if isinstance(device, str) else TypeError, match="device"):
        ad.from_dlpack(np.arange(3), device=device)


def test_the_devices_of_other_libraries(torch):
    assert address(ad.from_dlpack(np.arange(3), device=torch.device("cpu")))
    with pytest.raises(BufferError):
        ad.from_dlpack(np.arange(3), device=torch.device("cuda:1"))


@pytest.mark.parametrize("device", [(2, 0), (13, 0), (10, 0)])
def test_work_on_a_gpu_is_not_ordered_by_this_build(device):
    source = Producer(device=device)
    source.tensor.expected = 0
    with pytest.raises(BufferError):
        ad.from_dlpack(source)
    assert source.calls == []


class TestCopies:
    @pytest.mark.parametrize("copied_flag", [0, IS_COPIED])
    @pytest.mark.parametrize("read_only", [0, READ_ONLY])
    def test_copy_true_is_memory_of_its_own(self, copied_flag: int, read_only: int):
        producer, source = producers.dlpack(flags=copied_flag | read_only)
        with ad.track_copies() as log:
            tensor = ad.from_dlpack(source, copy=True)
        assert (tensor.copied, tensor.writable) == (True, True)
        assert log.bytes == 24
        assert producer.released
        np.from_dlpack(tensor)[0, 0] = 99
        assert producer.bytes()[:4] == bytes(4)

    def test_copy_true_of_a_tensor_of_ours(self):
        tensor = ad.from_dlpack(np.arange(3))
        copy = ad.from_dlpack(tensor, copy=True)
        assert address(copy) != address(tensor)
        assert address(ad.from_dlpack(tensor, copy=False)) == address(tensor)

    def test_copy_false_refuses_what_the_producer_copied(self):
        producer, source = producers.dlpack(flags=IS_COPIED)
        with pytest.raises(ad.CopyError, match="producer"):
            ad.from_dlpack(source, copy=False)
        assert producer.releases == 1
        _, source = producers.dlpack(flags=IS_COPIED)
        assert ad.from_dlpack(source).copied

    def test_strided_copies_are_row_major(self):
        source = np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1)[::-1]
        copy = ad.from_dlpack(source, copy=True)
        assert copy.strides == (6, 3, 1)
        np.testing.assert_array_equal(np.from_dlpack(copy), source)

    @pytest.mark.parametrize("copy", [1, "x", [], np.bool_(True)], ids=repr)
    def test_copy_is_a_bool_or_none(self, copy):
        if isinstance(copy, np.bool_):
            assert ad.from_dlpack(np.arange(3), copy=copy).copied
            return
        with pytest.raises(TypeError):
            ad.from_dlpack(np.arange(3), copy=copy)


class TestMisaligned:
    def test_is_realigned_by_a_copy(self):
        producer, source = producers.dlpack(misaligned_by=1)
        with ad.track_copies() as log:
            tensor = ad.from_dlpack(source)
        assert tensor.copied
        assert log.bytes == 24
        assert address(tensor) % 64 == 0
        assert np.from_dlpack(tensor).tolist() == [[0, 1, 2], [3, 4, 5]]
        assert producer.released

    def test_is_refused_without_one(self):
        producer, source = producers.dlpack(misaligned_by=2)
        with pytest.raises(ad.CopyError, match="aligned"):
            ad.from_dlpack(source, copy=False)
        assert producer.releases == 1

    def test_does_not_matter_to_bytes_or_to_nothing(self):
        producer, source = producers.dlpack(dtype=(1, 8, 1), shape=(24,), strides=(1,), misaligned_by=1)
        assert address(ad.from_dlpack(source, copy=False)) == producer.address
        _, source = producers.dlpack(shape=(0, 3), misaligned_by=1)
        assert not ad.from_dlpack(source, copy=False).copied


class TestReadOnly:
    @pytest.mark.parametrize("read_only", [True, False])
    def test_the_flag_is_kept(self, read_only: bool):
        _, source = producers.dlpack(flags=READ_ONLY if read_only else 0)
        tensor = ad.from_dlpack(source)
        assert tensor.writable != read_only
        assert np.from_dlpack(tensor).flags.writeable != read_only

    def test_unversioned_memory_is_read_only(self):
        producer, source = producers.dlpack(versioned=False)
        tensor = ad.from_dlpack(source)
        assert not tensor.writable
        assert address(tensor) == producer.address
        # And stays so for those who ask for an unversioned capsule in turn: they get a copy.
        _, struct = producers.read_dlpack(capsule := tensor.__dlpack__())
        assert struct.data != producer.address
        del capsule


def test_positional_only_and_keywords():
    with pytest.raises(TypeError):
        ad.from_dlpack(x=np.arange(3))
    with pytest.raises(TypeError):
        ad.from_dlpack(np.arange(3), "cpu")


def test_subclass_and_instance_attributes():
    class WithAttribute:
        pass

    source = WithAttribute()
    with pytest.raises(TypeError):
        ad.from_dlpack(source)


def test_strides_of_nothing_are_row_major():
    # Size 1 and size 0 dimensions may come with any stride.
    for shape, strides in [((1, 6), (77, 1)), ((6, 1), (1, -5)), ((0, 3), (9, 9))]:
        _, source = producers.dlpack(shape=shape, strides=strides)
        tensor = ad.from_dlpack(source)
        assert tensor.strides == ad.from_dlpack(np.zeros(shape)).strides


def test_an_array_of_ours_keeps_its_type():
    """DLPack has no place for it, nor for the dictionary of codes."""
    when = pa.array([1, 2], pa.timestamp("s", "UTC"))
    for column in (when, pa.array(["a", "b"]).dictionary_encode(), pa.array([True, False]), when.cast(pa.date32())):
        array = ad.from_arrow(column)
        assert pa.array(ad.to_arrow(array)) == column
        assert pa.array(ad.to_arrow(ad.from_dlpack(array, copy=True))) == column
        assert pa.array(ad.to_arrow(ad.Ragged(array, np.array([0, 2])))).type.value_type == column.type
    tensor = ad.from_dlpack(ad.from_arrow(when), copy=False)
    assert "view, read-only" in repr(tensor)
    codes = ad.from_dlpack(ad.from_arrow(pa.array(["a", "b"]).dictionary_encode()))
    assert pa.array(codes.dictionary).to_pylist() == ["a", "b"]
    with pytest.raises(ad.CopyError, match="unpacked"):
        ad.from_dlpack(ad.from_arrow(pa.array([True])), copy=False)
    with pytest.raises(ad.NullError, match=r"arrow_dlpack\.to_tensor's"):
        ad.to_arrow(ad.from_arrow(pa.array([1, None])))
