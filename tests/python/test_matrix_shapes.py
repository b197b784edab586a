"""Columns of several elements a row, such as embeddings, among the columns of a matrix."""

from __future__ import annotations

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest

GENERATOR = np.random.default_rng(5)


def lists(values: np.ndarray) -> pa.FixedSizeListArray:
    """Fixed-size lists as deep as the shape of the values."""
    array = pa.array(values.reshape(-1))
    for size in values.shape[:0:-1]:
        array = pa.FixedSizeListArray.from_arrays(array, size)
    return array


def wide(rows: int, *shape: int, dtype: str = "float32") -> np.ndarray:
    return GENERATOR.integers(0, 100, (rows, *shape)).astype(dtype)


def flat(*columns: np.ndarray) -> np.ndarray:
    rows = len(columns[0])
    return np.concatenate([column.reshape(rows, -1) for column in columns], axis=1)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("rows", [1, 63, 1000])
@pytest.mark.parametrize("shape", [(1,), (3,), (64,), (100,), (2, 3), (5000,)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_their_elements_are_columns_in_order(order: str, rows: int, shape: tuple[int, ...], dtype: str):
    if rows * np.prod(shape) > 500_000:
        rows = 100
    a, emb, b, c = wide(rows), wide(rows, *shape), wide(rows), wide(rows, 2)
    table = pa.table({"a": a, "emb": lists(emb), "b": b, "c": lists(c)})
    expected = flat(a, emb, b, c).astype(dtype)
    cut = max(1, rows // 3)
    in_chunks = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    for data in (table, in_chunks):
        made = np.asarray(ad.to_tensor(data, order=order, dtype=dtype, threads=2))
        np.testing.assert_array_equal(made, expected)
        assert made.flags.c_contiguous if order == "C" or rows == 1 else made.flags.f_contiguous
    stream = ad.to_tensor(iter(in_chunks.to_batches()), order=order, dtype=dtype)
    np.testing.assert_array_equal(np.asarray(stream), expected)
    padded = np.full((rows, expected.shape[1] + 3), -1, dtype)
    out = padded[:, :-3] if order == "C" else np.empty(expected.shape, dtype, order="F")
    ad.to_tensor(in_chunks, out=out)
    np.testing.assert_array_equal(out, expected)
    assert (padded[:, -3:] == -1).all()


def test_bits_values_of_dictionaries_and_lists_without_values():
    rows = 200
    bits, codes = wide(rows, 5) > 50, wide(rows, 3).astype("int32") % 2
    dictionary = pa.DictionaryArray.from_arrays(codes.reshape(-1), pa.array([0.5, 7.0], pa.float32()))
    table = pa.table(
        {
            "bits": pa.FixedSizeListArray.from_arrays(pa.array(bits.reshape(-1)), 5),
            "none": pa.array([[]] * rows, pa.list_(pa.float32(), 0)),
            "codes": pa.FixedSizeListArray.from_arrays(dictionary, 3),
        }
    )
    data = table.slice(3)
    values = np.array([0.5, 7.0])[codes]
    made = ad.to_tensor(data, dtype="float64")
    np.testing.assert_array_equal(np.asarray(made), flat(bits, values)[3:])
    assert ad.to_tensor(data.select(["none"]), dtype="float32").shape == (rows - 3, 0)


def with_nulls(rows: int) -> tuple[pa.Table, np.ndarray, np.ndarray]:
    values = [None if row % 5 == 2 else [row, None if row % 3 == 0 else -row, 1] for row in range(rows)]
    table = pa.table({"a": pa.array(range(rows), pa.int32()), "emb": pa.array(values, pa.list_(pa.int32(), 3))})
    cells = [[row, *(value or [None] * 3)] for row, value in enumerate(values)]
    valid = np.array([[cell is not None for cell in row] for row in cells])
    return table, np.array([[0 if cell is None else cell for cell in row] for row in cells]), valid


@pytest.mark.parametrize("start", [0, 7])
def test_nulls_of_rows_and_of_elements(start: int):
    table, values, valid = with_nulls(300)
    table, values, valid = table.slice(start), values[start:], valid[start:]
    np.testing.assert_array_equal(np.asarray(ad.to_tensor(table, nulls=9)), np.where(valid, values, 9))
    np.testing.assert_array_equal(np.asarray(ad.validity(table)), valid)
    floats = np.asarray(ad.to_tensor(table, dtype="float32", nulls="nan"))
    np.testing.assert_array_equal(floats, np.where(valid, values, np.nan))
    by_column = np.asarray(ad.to_tensor(table, nulls={"emb": -4}, order="F"))
    np.testing.assert_array_equal(by_column, np.where(valid, values, -4))
    with pytest.raises(ad.ConversionError, match=f'column "emb", row {np.argmin(valid.all(axis=1))}'):
        ad.to_tensor(table)
    groups = {"x": ad.group(["emb", "a"], nulls="keep", validity="m")}
    made = ad.to_tensors(table, columns=groups)
    np.testing.assert_array_equal(np.asarray(made["x"]), values[:, [1, 2, 3, 0]])
    np.testing.assert_array_equal(np.asarray(made["m"]), valid[:, [1, 2, 3, 0]])
    for order in ("C", "F"):
        np.testing.assert_array_equal(np.asarray(ad.validity(table, order=order)), valid)


def test_an_error_names_the_lowest_row_of_all_columns():
    emb = np.ones((400, 70), "int64")
    emb[300, 69] = 1000
    table = pa.table({"a": np.ones(400, "int64"), "emb": lists(emb), "b": np.where(np.arange(400) == 299, 5000, 1)})
    for order in ("C", "F"):
        with pytest.raises(ad.ConversionError, match='column "b", row 299: the value 5000'):
            ad.to_tensor(table, dtype="int8", order=order)
        with pytest.raises(ad.ConversionError, match='column "emb", row 300: the value 1000'):
            ad.to_tensor(table.select(["a", "emb"]), dtype="int8", order=order)
    table = table.set_column(2, "b", pa.array([None if row == 301 else 1 for row in range(400)], pa.int64()))
    with pytest.raises(ad.ConversionError, match='column "emb", row 300: the value 1000'):
        ad.to_tensor(table, dtype="int8")


def test_they_are_copied_and_the_report_says_so():
    table = with_nulls(50)[0]
    report = ad.explain(table, columns={"x": ad.group(["a", "emb"], nulls=0, validity="m")})
    rows = {row.column: row for row in report}
    assert (rows["a"].shape, rows["emb"].shape, rows["m"].shape) == ((50,), (50, 3), (50, 4))
    whole = report.matrices[0]
    assert (whole.shape, whole.dtype, whole.view) == ((50, 4), "int32", False)
    assert whole.bytes == 50 * 4 * 4
    with ad.track_copies() as log:
        ad.to_tensor(table, nulls=0)
    (entry,) = log
    assert ("matrix of 50 rows and 4 columns of int32" in entry.what, entry.bytes) == (True, whole.bytes)
    for data in (table, table.select(["emb"])):
        with pytest.raises(ad.ConversionError, match="copy"):
            ad.to_tensor(data, nulls=0, copy=False)
    assert ad.explain(table.schema, columns={"x": ["a", "emb"]}).matrices[0].shape == (None, 4)


def test_rows_that_are_permuted_are_refused():
    storage = pa.array([[1, 2, 3, 4, 5, 6]], pa.list_(pa.int16(), 6))
    tensors = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.int16(), [2, 3]), storage)
    table = pa.table({"t": tensors, "a": pa.array([7], pa.int16())})
    np.testing.assert_array_equal(np.asarray(ad.to_tensor(table)), [[1, 2, 3, 4, 5, 6, 7]])
    permuted = pa.fixed_shape_tensor(pa.int16(), [2, 3], permutation=[1, 0])
    table = table.set_column(0, "t", pa.ExtensionArray.from_storage(permuted, storage))
    with pytest.raises(ad.UnsupportedTypeError, match=r'column "t".*permuted.*to_tensor\('):
        ad.to_tensor(table)


@pytest.mark.parametrize("shuffle_buffer", [0, 50])
def test_the_loader_has_the_same_rows(shuffle_buffer: int):
    rows, k = 500, 20
    a, emb = np.arange(rows, dtype="float32"), wide(rows, k)
    table = pa.table({"a": a, "emb": lists(emb)})
    loader = ad.Loader(
        table.to_batches(max_chunksize=70),
        batch_size=64,
        columns={"x": ad.group(["emb", "a"], validity="m")},
        shuffle_buffer=shuffle_buffer,
        seed=1,
    )
    seen = []
    for batch in loader:
        x = np.asarray(batch["x"])
        np.testing.assert_array_equal(x[:, :k], emb[x[:, k].astype(int)])
        assert np.asarray(batch["m"]).shape == x.shape
        assert np.asarray(batch["m"]).all()
        seen.extend(x[:, k].astype(int))
    assert sorted(seen) == list(range(rows))
    assert (seen == list(range(rows))) == (shuffle_buffer == 0)


def pair_of(array: pa.Array) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(array, 2)


CODES_IN_LISTS = {
    "s": pair_of(pa.array([1, 2, 3, 4], pa.timestamp("s"))),
    "ms": pair_of(pa.array([1, 2, 3, 4], pa.timestamp("ms"))),
    "days": pair_of(pa.array([1, 2, 3, 4], pa.date32())),
    "text": pair_of(pa.array(["x", "y", "x", "y"]).dictionary_encode()),
    "values": pair_of(pa.array([1.5, 2.5, 1.5, 2.5]).dictionary_encode()),
    "decimal": pair_of(pa.array([1, 2, 3, 4], pa.decimal64(10, 2))),
    "other scale": pair_of(pa.array([1, 2, 3, 4], pa.decimal64(10, 3))),
    "nested": pair_of(pair_of(pa.array(range(8), pa.duration("s")))),
    "lists": pa.array([[1, 2], [3, 4]], pa.list_(pa.timestamp("us"))),
}


@pytest.mark.parametrize("kind", CODES_IN_LISTS)
def test_codes_in_lists_join_only_their_own_kind(kind: str):
    codes = CODES_IN_LISTS[kind]
    options = {"decimal": "unscaled", "length": {"a": 2} if kind == "lists" else None}
    others = {name: other for name, other in CODES_IN_LISTS.items() if name not in (kind, "lists")}
    for other in (*others.values(), pa.array([1.5, 2.5]), pa.array([1, 2])):
        for names in ("ab", "ba"):
            table = pa.table({"a": codes, "b": other}).select(list(names))
            with pytest.raises(ad.ConversionError, match="do not mix"):
                ad.to_tensor(table, **options)
            assert "do not mix" in str(ad.explain(table, columns={"m": ad.group(["a", "b"])}, **options))
    twice = ad.to_tensor(pa.table({"a": codes, "b": codes}), decimal="unscaled", length=options["length"] and 2)
    assert twice.shape == (2, 8 if kind == "nested" else 4)


def test_ticks_join_lists_of_the_same_ticks():
    table = pa.table({"a": CODES_IN_LISTS["s"], "b": pa.array([5, 6], pa.timestamp("s"))})
    assert np.asarray(ad.to_tensor(table)).tolist() == [[1, 2, 5], [3, 4, 6]]


def test_errors_name_the_kind_of_codes_in_lists():
    table = pa.table({"a": pair_of(pa.array(["x", "y", "x", "y"])), "b": pa.array([1.5, 2.5])})
    with pytest.raises(ad.ConversionError, match="codes of categories"):
        ad.to_tensor(table, categories={"a": ["x", "y"]})
    with pytest.raises(ad.ConversionError, match="dictionary codes"):
        ad.to_tensor(pa.table({"a": CODES_IN_LISTS["text"], "b": pa.array([1.5, 2.5])}))


@pytest.mark.parametrize("shape", [(0, 2), (2, 0), (2, 0, 3), (0, 0), (3, 2, 0)], ids=str)
def test_rows_without_elements_have_no_order(shape: tuple[int, ...]):
    data_type = pa.int8()
    for size in reversed(shape):
        data_type = pa.list_(data_type, size)
    rows = pa.array([np.zeros(shape).tolist()] * 3, data_type)
    table = pa.table({"e": rows, "b": pa.array([1, 2, 3], pa.int8())})
    assert np.asarray(ad.to_tensor(table)).tolist() == [[1], [2], [3]]
    assert np.asarray(ad.to_tensor(table, order="F")).tolist() == [[1], [2], [3]]
    assert np.asarray(ad.validity(table)).tolist() == [[True], [True], [True]]
    assert np.asarray(ad.to_tensor(table.slice(1))).tolist() == [[2], [3]]
