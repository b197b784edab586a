"""The exceptions: their family, and what they tell."""

import json
import pickle
import re

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest

SUBCLASSES = [ad.CopyError, ad.NullError, ad.CastError, ad.UnsupportedTypeError, ad.InternalError]


def test_the_family():
    assert ad.ConversionError.__bases__ == (BufferError, ValueError)
    for cls in SUBCLASSES:
        assert cls.__bases__ == (ad.ConversionError,)
    for cls in [ad.ConversionError, *SUBCLASSES]:
        assert cls.__module__ == "arrow_dlpack"
        assert cls.__doc__
        assert getattr(ad, cls.__name__) is cls


def test_attributes_have_defaults():
    error = ad.CopyError("mine")
    assert str(error) == "mine"
    assert (error.column, error.row, error.reason, error.remedy) == (None, None, None, None)


BATCH = pa.record_batch({"x": pa.array([1, None, 300]), "s": ["a", "b", "c"]})


@pytest.mark.parametrize(
    ("work", "cls", "column", "row", "remedy"),
    [
        (lambda: ad.to_tensors(BATCH, columns=["x"]), ad.NullError, "x", 1, True),
        (lambda: ad.to_tensors(BATCH, columns=["x"], nulls=0, dtype="int8"), ad.CastError, "x", 2, True),
        (lambda: ad.to_tensors(BATCH, columns=["x"], nulls=0, copy=False), ad.CopyError, "x", None, True),
        (lambda: ad.to_tensors(BATCH, columns=["s"]), ad.UnsupportedTypeError, "s", None, True),
        (lambda: ad.to_tensors(BATCH, columns=["x"], nulls="nan"), ad.NullError, "x", None, True),
        (lambda: ad.to_tensor(pa.array([1, None])), ad.NullError, None, 1, True),
        (lambda: ad.to_arrow(np.arange(4)[::2], copy=False), ad.CopyError, None, None, True),
        (lambda: ad.to_tensor(pa.array(["a"]), dtype="int8"), ad.UnsupportedTypeError, None, None, True),
        (lambda: ad.from_dlpack(np.arange(3)).__dlpack__(dl_device=(2, 0)), ad.ConversionError, None, None, True),
        (
            lambda: ad.from_arrow(BATCH).__arrow_c_array__(pa.int8().__arrow_c_schema__()),
            ad.CastError,
            None,
            None,
            True,
        ),
    ],
)
def test_they_say_where_why_and_what_helps(work, cls, column, row, remedy):
    with pytest.raises(ad.ConversionError) as caught:
        work()
    error = caught.value
    assert type(error) is cls
    assert (error.column, error.row) == (column, row)
    assert error.reason
    assert error.reason in str(error)
    assert bool(error.remedy) == remedy
    assert not remedy or error.remedy in str(error)
    assert column is None or f'"{column}"' in str(error)
    assert row is None or f"row {row}" in str(error)
    assert isinstance(error, BufferError)
    assert isinstance(error, ValueError)


def test_the_remedy_helps():
    with pytest.raises(ad.NullError) as caught:
        ad.to_tensor(pa.array([1.5, None]))
    assert 'nulls="nan"' in caught.value.remedy
    assert ad.to_tensor(pa.array([1.5, None]), nulls="nan").size == 2
    with pytest.raises(ad.NullError) as caught:
        ad.to_tensor(pa.array([1, None]), nulls="nan")
    assert 'dtype="float64"' in caught.value.remedy
    assert ad.to_tensor(pa.array([1, None]), nulls="nan", dtype="float64").size == 2


def test_an_error_can_be_pickled():
    error = pickle.loads(pickle.dumps(ad.CopyError("mine")))
    assert type(error) is ad.CopyError
    assert str(error) == "mine"


def test_rows_count_over_chunks_and_lists():
    chunks = pa.chunked_array([[1, 2], [], [3, 400]])
    with pytest.raises(ad.CastError) as caught:
        ad.to_tensor(chunks, dtype="int8")
    assert caught.value.row == 3
    assert "400" in caught.value.reason
    lists = pa.array([[1, 2], [3, 400]], pa.list_(pa.int64(), 2))
    with pytest.raises(ad.CastError) as caught:
        ad.to_tensor(lists, dtype="int8")
    assert caught.value.row == 1


def test_memory_that_cannot_be_had():
    huge = np.broadcast_to(np.float64(1), (1 << 20, 1 << 30))
    with pytest.raises((MemoryError, BufferError)):
        ad.from_dlpack(huge, copy=True)
    beyond = np.broadcast_to(np.int8(1), (1 << 31, 1 << 31))
    with pytest.raises((MemoryError, BufferError)):
        ad.from_dlpack(beyond, copy=True)


def test_an_error_in_an_except_block_has_its_context():
    def refused() -> None:
        with pytest.raises(ad.ConversionError) as caught:
            ad.to_tensor(pa.array(["text"]))
        contexts.append(caught.value.__context__)

    contexts: list[BaseException | None] = []
    handled = KeyError("first")
    try:
        raise handled
    except KeyError:
        refused()
    refused()
    assert contexts == [handled, None]


def test_names_that_are_not_utf8_are_unknown_names():
    name = "\udc80"
    table = pa.table({"a": [1], "\ufffd": [2]})
    batch, report = ad.from_arrow(table.to_batches()[0]), ad.explain(table)
    for known in (batch, report):
        with pytest.raises(KeyError) as caught:
            known[name]
        assert caught.value.args == (name,)
        assert name not in known
        with pytest.raises(TypeError):
            known[0.5]
    for call in (ad.to_tensors, ad.to_tensor, ad.explain):
        with pytest.raises(UnicodeEncodeError):
            call(table, columns=["a", name])


@pytest.mark.parametrize("name", ["a\x7f", "tab\t", "line\nend", "\u200b", '5"', "C:\\0", "é", "\U000e0001"])
def test_names_are_written_as_python_writes_them(name: str):
    written = json.dumps(name, ensure_ascii=False) if name.isprintable() else '"' + repr(name)[1:-1] + '"'
    nulls = pa.record_batch({name: pa.array([None], pa.int8())})
    with pytest.raises(ad.NullError) as caught:
        ad.to_tensors(nulls)
    assert str(caught.value).startswith(f"column {written}, row 0: ")
    assert caught.value.column == name
    texts = pa.record_batch({name: ["a"]})
    with pytest.raises(ad.UnsupportedTypeError) as refused:
        ad.to_tensors(texts)
    assert f"columns={{{written}: ad.padded({written})}}" in str(refused.value)
    assert f"ad.padded({written})" in str(refused.value.remedy)
    with pytest.raises(ad.ConversionError) as missing:
        ad.to_tensors(pa.record_batch({"x": [1]}), columns=[name])
    assert str(missing.value).startswith(f"column {written}: there is no such column")
    assert f"ad.padded({written})" in str(ad.explain(texts)[0].error)
    # One line for each column, and one for the head.
    lines = str(ad.explain(texts)).split("\n")
    assert len(lines) == 2
    assert lines[1].startswith(name if name.isprintable() else written)
    with pytest.raises(ValueError, match=re.escape(f"{written} is not a dtype")):
        ad.to_tensor(pa.array([1]), dtype=name)
