// Functions that take and give nb::ndarray under each kind of constraint, for test_nanobind.py.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <atomic>
#include <complex>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace nb = nanobind;

namespace {

std::atomic<int> deleted{0};

// What a function was given: address, shape, strides, dtype, device.
template <typename... Args> nb::tuple described(const nb::ndarray<Args...> &array) {
    nb::list shape, strides;
    for (size_t i = 0; i < array.ndim(); ++i) {
        shape.append(array.shape(i));
        strides.append(array.stride(i));
    }
    auto dtype = array.dtype();
    return nb::make_tuple(reinterpret_cast<uintptr_t>(array.data()), nb::tuple(shape), nb::tuple(strides),
                          nb::make_tuple(dtype.code, dtype.bits, dtype.lanes),
                          nb::make_tuple(array.device_type(), array.device_id()));
}

template <typename... Args> void taking(nb::module_ &m, const char *name) {
    m.def(name, [](nb::ndarray<Args...> array) { return described(array); }, nb::arg().noconvert());
}

// Memory that counts when it is freed.
nb::capsule owner_of(std::vector<uint64_t> *memory) {
    return nb::capsule(memory, [](void *pointer) noexcept {
        delete static_cast<std::vector<uint64_t> *>(pointer);
        ++deleted;
    });
}

// Bytes 0, 1, 2, ... as an array of any dtype and layout, which starts `offset` bytes into the memory.
template <typename... Args> void making(nb::module_ &m, const char *name) {
    m.def(name,
          [](nb::tuple shape, nb::tuple strides, uint8_t code, uint8_t bits, uint64_t offset, int device_type) {
              std::vector<size_t> extents;
              std::vector<int64_t> steps;
              for (nb::handle extent : shape)
                  extents.push_back(nb::cast<size_t>(extent));
              for (nb::handle step : strides)
                  steps.push_back(nb::cast<int64_t>(step));
              auto memory = std::make_unique<std::vector<uint64_t>>(64);
              auto *bytes = reinterpret_cast<uint8_t *>(memory->data());
              for (size_t i = 0; i < 512; ++i)
                  bytes[i] = static_cast<uint8_t>(i);
              nb::capsule owner = owner_of(memory.release());
              return nb::ndarray<nb::array_api, Args...>(bytes, extents.size(), extents.data(), owner, steps.data(),
                                                         nb::dlpack::dtype{code, bits, 1}, device_type, 0, 0, offset);
          },
          nb::arg("shape"), nb::arg("strides"), nb::arg("code"), nb::arg("bits"), nb::arg("offset") = 0,
          nb::arg("device_type") = 1);
}

// Keeps what it was given until it is told otherwise.
nb::ndarray<nb::ro> kept;

} // namespace

NB_MODULE(nanobind_arrays, m) {
    taking<>(m, "writable");
    taking<nb::ro>(m, "read_only");
    taking<nb::ro, nb::c_contig>(m, "row_major");
    taking<nb::ro, nb::f_contig>(m, "column_major");
    taking<nb::ro, nb::device::cpu>(m, "on_cpu");
    taking<nb::ro, nb::device::cuda>(m, "on_cuda");
    taking<nb::ro, nb::shape<2, 3>>(m, "two_by_three");
    taking<nb::ro, nb::shape<-1, 3>>(m, "any_by_three");
    taking<const float>(m, "float32");
    taking<const int32_t>(m, "int32");
    taking<const bool>(m, "boolean");
    taking<const std::complex<float>>(m, "complex64");

    m.def("sum", [](nb::ndarray<const double, nb::ndim<1>, nb::device::cpu> array) {
        auto view = array.view();
        double total = 0;
        for (size_t i = 0; i < view.shape(0); ++i)
            total += view(i);
        return total;
    }, nb::arg().noconvert());
    m.def("fill", [](nb::ndarray<double, nb::ndim<1>, nb::device::cpu> array, double value) {
        auto view = array.view();
        for (size_t i = 0; i < view.shape(0); ++i)
            view(i) = value;
    }, nb::arg().noconvert(), nb::arg("value"));

    making<>(m, "make");
    making<nb::ro>(m, "make_read_only");
    m.def("deleted", [] { return deleted.load(); });

    m.def("keep", [](nb::ndarray<nb::ro> array) { kept = array; }, nb::arg().noconvert());
    m.def("drop", [] { kept = {}; });
    m.def("drop_in_thread", [] {
        nb::gil_scoped_release released;
        std::thread([] { kept = {}; }).join();
    });
}
