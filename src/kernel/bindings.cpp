// The only file that knows Python: it checks shapes, releases the GIL and calls the kernel.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <stdexcept>

#include "constraints.hpp"
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

template <typename T>
using Vector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

bitrank::PackedRows packed_rows(const Codes &plus, const Codes &minus, std::size_t n_bits) {
    require(plus.shape(0) == minus.shape(0) && plus.shape(1) == minus.shape(1), "plus and minus must have one shape");
    require(plus.shape(1) == (n_bits + 7) / 8, "rows must have ceil(n_bits / 8) bytes");
    return {plus.data(), minus.data(), plus.shape(0), n_bits};
}

void margins(Codes plus, Codes minus, Vector<const double> weights, Vector<double> out) {
    const auto rows = packed_rows(plus, minus, weights.shape(0));
    require(out.shape(0) == rows.n_rows, "out must have one value a row");
    nb::gil_scoped_release release;
    bitrank::margins(rows, weights.data(), out.data());
}

void combine(Codes plus, Codes minus, Vector<const double> values, Vector<double> out) {
    const auto rows = packed_rows(plus, minus, out.shape(0));
    require(values.shape(0) == rows.n_rows, "values must have one value a row");
    nb::gil_scoped_release release;
    bitrank::combine(rows, values.data(), out.data());
}

void gram(Codes plus, Codes minus, Vector<const bool> active, Matrix<double> out, Vector<double> total) {
    const auto rows = packed_rows(plus, minus, total.shape(0));
    require(active.shape(0) == rows.n_rows, "active must have one value a row");
    require(out.shape(0) == rows.n_bits && out.shape(1) == rows.n_bits, "out must be (n_bits, n_bits)");
    nb::gil_scoped_release release;
    bitrank::gram(rows, reinterpret_cast<const std::uint8_t *>(active.data()), out.data(), total.data());
}

std::size_t passive_aggressive(Matrix<const double> order, Matrix<const double> tie, double c_order, double c_tie,
                               double tolerance, std::size_t max_sweeps, Vector<double> weights) {
    const std::size_t n_bits = weights.shape(0);
    require(order.shape(1) == n_bits && tie.shape(1) == n_bits, "rows must have n_bits values");
    return bitrank::passive_aggressive({order.data(), order.shape(0)}, {tie.data(), tie.shape(0)}, n_bits, c_order,
                                       c_tie, tolerance, max_sweeps, weights.data());
}

}  // namespace

NB_MODULE(_kernel, module) {
    using namespace nb::literals;
    module.def("weighted_hamming", &weighted_hamming, "queries"_a, "codes"_a, "weights"_a, "out"_a.noconvert(),
               "threads"_a = 1);
    module.def("hamming", &hamming, "queries"_a, "codes"_a, "out"_a.noconvert(), "threads"_a = 1);
    module.def("margins", &margins, "plus"_a, "minus"_a, "weights"_a, "out"_a.noconvert());
    module.def("combine", &combine, "plus"_a, "minus"_a, "values"_a, "out"_a.noconvert());
    module.def("gram", &gram, "plus"_a, "minus"_a, "active"_a, "out"_a.noconvert(), "total"_a.noconvert());
    module.def("passive_aggressive", &passive_aggressive, "order"_a, "tie"_a, "c_order"_a, "c_tie"_a, "tolerance"_a,
               "max_sweeps"_a, "weights"_a.noconvert());
}
