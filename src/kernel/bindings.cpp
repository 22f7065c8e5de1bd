// The only file that knows Python: it checks shapes, releases the GIL and calls the kernel.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <stdexcept>

#include "distances.hpp"

namespace nb = nanobind;

namespace {

using Codes = nb::ndarray<const std::uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Weights = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <typename T>
using Matrix = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

void require(bool condition, const char *message) {
    if (!condition) throw std::invalid_argument(message);
}

void weighted_hamming(Codes queries, Codes codes, Weights weights, Matrix<float> out, std::size_t threads) {
    const std::size_t n_bits = weights.shape(1);
    require(queries.shape(1) == (n_bits + 7) / 8 && codes.shape(1) == queries.shape(1),
            "queries and codes must have ceil(n_bits / 8) bytes, n_bits being the width of weights");
    require(weights.shape(0) == 1 || weights.shape(0) == queries.shape(0), "weights: one row, or one for each query");
    require(out.shape(0) == queries.shape(0) && out.shape(1) == codes.shape(0), "out must be (n_queries, n_codes)");
    const bitrank::Distances task{queries.data(), queries.shape(0), codes.data(),          codes.shape(0),
                                  n_bits,         weights.data(),   weights.shape(0) > 1, out.data()};
    nb::gil_scoped_release release;
    bitrank::weighted_hamming(task, threads);
}

void hamming(Codes queries, Codes codes, Matrix<std::uint16_t> out, std::size_t threads) {
    require(codes.shape(1) == queries.shape(1), "queries and codes must have the same width");
    require(codes.shape(1) < 8192, "codes must have fewer than 65536 bits");
    require(out.shape(0) == queries.shape(0) && out.shape(1) == codes.shape(0), "out must be (n_queries, n_codes)");
    nb::gil_scoped_release release;
    bitrank::hamming(queries.data(), queries.shape(0), codes.data(), codes.shape(0), codes.shape(1), out.data(),
                     threads);
}

}  // namespace

NB_MODULE(_kernel, module) {
    using namespace nb::literals;
    module.def("weighted_hamming", &weighted_hamming, "queries"_a, "codes"_a, "weights"_a, "out"_a.noconvert(),
               "threads"_a = 1);
    module.def("hamming", &hamming, "queries"_a, "codes"_a, "out"_a.noconvert(), "threads"_a = 1);
}
