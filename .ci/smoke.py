"""A tensor each way with NumPy alone: for systems on which the other libraries have no wheels."""

import arrow_dlpack as ad
import numpy as np

values = np.arange(6, dtype="float32").reshape(2, 3)
tensor = ad.from_dlpack(values)
batch = ad.to_arrow(tensor, names=["a", "b", "c"])
assert np.array_equal(np.from_dlpack(ad.to_tensor(batch)), values)
column = ad.to_arrow(ad.from_dlpack(values[:, 0].copy()))
viewed = np.from_dlpack(ad.to_tensor(column, copy=False))
assert not viewed.flags.writeable
assert viewed.tolist() == [0, 3]
print(f"arrow_dlpack {ad.__version__}: a tensor each way")
