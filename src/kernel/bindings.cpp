// Python bindings: check shapes, release the GIL and call the kernel. No other file knows Python.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <tuple>

#include "checksum.hpp"
#include "learn/constraints.hpp"
#include "learn/gram.hpp"
#include "memory.hpp"
#include "paths.hpp"
#include "search/chosen.hpp"
#include "search/distances.hpp"
#include "search/layout.hpp"
#include "search/nearness.hpp"
#include "search/search.hpp"
#include "ties.hpp"
#include "vectors.hpp"

namespace nb = nanobind;

namespace {

template <typename T, std::size_t n>
using Array = nb::ndarray<T, nb::ndim<n>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Vector = Array<T, 1>;
template <typename T>
using Matrix = Array<T, 2>;
template <typename T>
using Result = nb::ndarray<nb::numpy, T, nb::ndim<2>, nb::c_contig>;
using Codes = Matrix<const std::uint8_t>;
using Weights = Matrix<const float>;
using Bits = Vector<const std::uint16_t>;
// blocks, bounds, supers, ids, least_ids, wanted, rest
using SegmentArrays = std::tuple<Array<const std::uint8_t, 3>, Array<const std::uint8_t, 4>,
                                 Array<const std::uint8_t, 3>, Vector<const std::int64_t>, Vector<const std::int64_t>,
                                 std::optional<Vector<const std::uint64_t>>, std::optional<Codes>>;

// blocks, floors, n_sure, n_read
using ChosenArrays = std::tuple<Matrix<const std::int64_t>, Matrix<const float>, std::size_t, Vector<std::int64_t>>;

// n_tail, low, step, root, terms
using EstimateArrays = std::tuple<std::size_t, double, double, bool, Matrix<const double>>;

void require(bool condition, const char *message) {
    if (!condition) throw std::invalid_argument(message);
}

// The path that BITRANK_KERNEL names, the fastest if it is not set. Call with the GIL held: os.environ changes under it.
const bitrank::Path &chosen_path() {
    const char *variable = std::getenv("BITRANK_KERNEL");
    const std::string name = variable ? variable : "";
    if (const bitrank::Path *path = bitrank::path(name)) return *path;
    throw std::invalid_argument("BITRANK_KERNEL must be one of " + bitrank::listed_paths() + ", got " + name);
}

bitrank::Distances distances_of(const Codes &queries, const Codes &codes, const Weights &weights,
                                const Matrix<float> &out) {
    const std::size_t n_bits = weights.shape(1);
    require(queries.shape(1) == (n_bits + 7) / 8 && codes.shape(1) == queries.shape(1),
            "queries and codes must have ceil(n_bits / 8) bytes, n_bits being the width of weights");
    require(weights.shape(0) == 1 || weights.shape(0) == queries.shape(0),
            "weights must have one row, or one per query");
    return {.queries = queries.data(),
            .n_queries = queries.shape(0),
            .codes = codes.data(),
            .n_codes = codes.shape(0),
            .n_bits = n_bits,
            .weights = weights.data(),
            .weights_per_query = weights.shape(0) > 1,
            .out = out.data()};
}

void weighted_hamming(Codes queries, Codes codes, Weights weights, Matrix<float> out, std::size_t threads) {
    const auto task = distances_of(queries, codes, weights, out);
    require(out.shape(0) == queries.shape(0) && out.shape(1) == codes.shape(0), "out must be (n_queries, n_codes)");
    nb::gil_scoped_release release;
    bitrank::weighted_hamming(task, threads);
}

void weighted_hamming_to_rows(Codes queries, Codes codes, Matrix<const std::int64_t> rows, Weights weights,
                              Matrix<float> out, std::size_t threads) {
    const auto task = distances_of(queries, codes, weights, out);
    require(rows.shape(0) == queries.shape(0), "rows must have one row per query");
    require(out.shape(0) == rows.shape(0) && out.shape(1) == rows.shape(1), "out must have the shape of rows");
    nb::gil_scoped_release release;
    const std::int64_t *first = rows.data(), *last = first + rows.size();
    const auto n_codes = static_cast<std::int64_t>(task.n_codes);
    require(std::all_of(first, last, [n_codes](std::int64_t row) { return row >= 0 && row < n_codes; }),
            "rows must be rows of codes");
    bitrank::weighted_hamming_to_rows(task, first, rows.shape(1), threads);
}

void hamming(Codes queries, Codes codes, Matrix<std::uint16_t> out, std::size_t threads) {
    require(codes.shape(1) == queries.shape(1), "queries and codes must have the same width");
    require(codes.shape(1) < 8192, "codes must have fewer than 65536 bits");
    require(out.shape(0) == queries.shape(0) && out.shape(1) == codes.shape(0), "out must be (n_queries, n_codes)");
    const bitrank::Scanner &scanner = *chosen_path().scanner;
    nb::gil_scoped_release release;
    bitrank::hamming(queries.data(), queries.shape(0), codes.data(), codes.shape(0), codes.shape(1), out.data(), threads,
                     scanner);
}

void nearest_sums(const bitrank::Sample &sample, Codes queries, std::size_t skipped, std::size_t last,
                  Vector<std::uint64_t> sums) {
    require(queries.shape(1) == sample.n_bytes(), "queries and the sample must have the same width");
    require(skipped <= last && last <= sample.size(), "last must be at least skipped, and at most the codes of the sample");
    require(sums.shape(0) == queries.shape(0), "sums must have one value per query");
    const bitrank::Scanner &scanner = *chosen_path().scanner;
    nb::gil_scoped_release release;
    sample.nearest_sums(queries.data(), queries.shape(0), skipped, last, sums.data(), scanner);
}

bool split_reals(Weights reals, Matrix<std::uint8_t> codes, Matrix<float> sizes) {
    require(codes.shape(0) == reals.shape(0) && codes.shape(1) == (reals.shape(1) + 7) / 8 &&
                sizes.shape(0) == reals.shape(0) && sizes.shape(1) == reals.shape(1),
            "codes and sizes must be (n_queries, ceil(n_bits / 8)) and (n_queries, n_bits)");
    nb::gil_scoped_release release;
    return bitrank::split_reals(reals.data(), reals.shape(0), reals.shape(1), codes.data(), sizes.data());
}

void split_products(Weights numbers, Vector<const std::int64_t> columns, Vector<const float> weights,
                    Matrix<std::uint8_t> codes, Matrix<float> sizes) {
    const std::size_t n = numbers.shape(0), n_bits = columns.shape(0);
    require(weights.shape(0) == n_bits, "weights must have one value per column");
    require(codes.shape(0) == n && codes.shape(1) == (n_bits + 7) / 8 && sizes.shape(0) == n && sizes.shape(1) == n_bits,
            "codes and sizes must be (n_queries, ceil(n_bits / 8)) and (n_queries, n_bits)");
    require(std::all_of(columns.data(), columns.data() + n_bits,
                        [&](std::int64_t i) { return i >= 0 && i < static_cast<std::int64_t>(numbers.shape(1)); }),
            "columns must be columns of numbers");
    nb::gil_scoped_release release;
    bitrank::split_products(numbers.data(), n, numbers.shape(1), columns.data(), weights.data(), n_bits, codes.data(),
                            sizes.data());
}

void round_to_exact_sums(Matrix<float> weights) {
    require(weights.shape(1) > 0, "weights must have a column");
    nb::gil_scoped_release release;
    for (std::size_t row = 0; row < weights.shape(0); ++row)
        bitrank::round_to_exact_sums(weights.data() + row * weights.shape(1), weights.shape(1));
}

template <typename T>
bool center(Matrix<const T> vectors, double length, std::optional<Vector<const double>> center, bool zeros,
            Matrix<float> out, Vector<double> squares) {
    const std::size_t n = vectors.shape(0), d = vectors.shape(1);
    require(out.shape(0) == n && out.shape(1) == d && squares.shape(0) == n && (!center || center->shape(0) == d),
            "out must have the shape of vectors, squares one value per vector, and center one per column");
    nb::gil_scoped_release release;
    return bitrank::center(vectors.data(), n, d, length, center ? center->data() : nullptr, zeros, out.data(),
                           squares.data());
}

bool shift(Matrix<float> rows, Vector<const float> shift, float most) {
    require(rows.shape(1) == shift.shape(0) + 2, "rows must have one column per shift, and two more");
    nb::gil_scoped_release release;
    return bitrank::shift(rows.data(), rows.shape(0), shift.shape(0), shift.data(), most);
}

bitrank::Order order_of(const Bits &bits) {
    for (std::size_t i = 0; i < bits.shape(0); ++i)
        require(bits.data()[i] < bits.shape(0), "order must be a permutation of the bits");
    return {bits.shape(0), bits.data()};
}

bitrank::Segment segment_of(const SegmentArrays &arrays, std::size_t n_bytes, std::size_t n_rest) {
    const auto &[blocks, bounds, supers, ids, least_ids, wanted, rest] = arrays;
    const bitrank::Segment out{.n_rows = ids.shape(0),
                               .blocks = blocks.data(),
                               .bounds = bounds.data(),
                               .supers = supers.data(),
                               .ids = ids.data(),
                               .least_ids = least_ids.data(),
                               .wanted = wanted ? wanted->data() : nullptr,
                               .rest = rest ? rest->data() : nullptr};
    require(blocks.shape(0) == out.n_blocks() && blocks.shape(1) == n_bytes && blocks.shape(2) == bitrank::lane_count,
            "blocks must be (n_blocks, n_bytes, 64)");
    require(bounds.shape(0) == out.n_supers() && bounds.shape(1) == n_bytes && bounds.shape(2) == 2 &&
                bounds.shape(3) == bitrank::lane_count,
            "bounds must be (n_supers, n_bytes, 2, 64)");
    require(supers.shape(0) == out.n_supers() && supers.shape(1) == n_bytes && supers.shape(2) == 2,
            "supers must be (n_supers, n_bytes, 2)");
    require(least_ids.shape(0) == out.n_blocks(), "least_ids must have one value per block");
    require(!wanted || wanted->shape(0) == out.n_blocks(), "wanted must have one word per block");
    require(n_rest ? rest && rest->shape(0) == out.n_rows && rest->shape(1) == n_rest : !rest,
            "rest must be (n_rows, n_rest)");
    return out;
}

// The segments of an index: codes of n_bytes in blocks, and n_rest more row by row. Keeps their arrays.
struct Segments {
    std::vector<SegmentArrays> arrays;
    std::size_t n_bytes, n_rest;
    std::vector<bitrank::Segment> views;

    Segments(std::vector<SegmentArrays> segments, std::size_t width, std::size_t width_of_rest)
        : arrays(std::move(segments)), n_bytes(width), n_rest(width_of_rest) {
        for (const auto &segment : arrays) views.push_back(segment_of(segment, n_bytes, n_rest));
    }
};

// Weights of one or several queries for one order of bits. One row is prepared at its first search, once per path and kind
// of sums.
struct Weightings {
    std::size_t n_rows, n_bits;
    std::vector<float> weights;
    std::vector<std::uint16_t> bits;
    std::mutex lock;
    std::map<std::pair<const bitrank::Scanner *, bool>, std::shared_ptr<const bitrank::Weighting>> prepared;

    Weightings(const Weights &rows, const Bits &order)
        : n_rows(rows.shape(0)), n_bits(rows.shape(1)), weights(rows.data(), rows.data() + rows.size()),
          bits(order.data(), order.data() + order.size()) {
        require(order_of(order).n_bits == n_bits, "weights must have one column per bit");
    }
    std::shared_ptr<const bitrank::Weighting> prepare(const bitrank::Search &task) {
        if (n_rows != 1) return nullptr;
        const std::lock_guard<std::mutex> guard(lock);
        auto &weighting = prepared[{task.scanner, task.sums8()}];
        if (!weighting) weighting = task.weighting(0);
        return weighting;
    }
};

bitrank::Search search_of(const Codes &queries, Weightings &weightings, const Segments &segments, std::size_t threads) {
    const bitrank::Scanner *scanner = chosen_path().scanner;
    const bitrank::Order order{weightings.n_bits, weightings.bits.data()};
    require(weightings.n_rows == 1 || weightings.n_rows == queries.shape(0), "weights must have one row, or one per query");
    require(queries.shape(1) == order.n_bytes() && segments.n_bytes == order.n_bytes(),
            "queries and segments must have ceil(n_bits / 8) bytes");
    bitrank::Search task{.queries = queries.data(),
                         .n_queries = queries.shape(0),
                         .weights = weightings.weights.data(),
                         .weights_per_query = weightings.n_rows != 1,
                         .order = order,
                         .segments = segments.views,
                         .k = 1,
                         .radius = bitrank::infinity,
                         .n_threads = threads,
                         .scanner = scanner};
    task.prepared = weightings.prepare(task);
    return task;
}

template <typename T>
Result<T> matrix_of(std::vector<T> values, std::size_t n_rows, std::size_t n_columns) {
    auto data = std::make_unique<std::vector<T>>(std::move(values));
    T *first = data->data();
    nb::capsule owner(data.release(), [](void *p) noexcept { delete static_cast<std::vector<T> *>(p); });
    return Result<T>(first, {n_rows, n_columns}, owner);
}

bitrank::Whole whole_of(const Codes &queries, const Weights &weights, const Bits &order, const Segments &segments,
                        std::size_t threads) {
    const std::size_t n_bits = weights.shape(1);
    const bitrank::Order bits = order_of(order);
    require(weights.shape(0) == 1 || weights.shape(0) == queries.shape(0), "weights must have one row, or one per query");
    require(queries.shape(1) == (n_bits + 7) / 8 && queries.shape(1) == segments.n_bytes + segments.n_rest &&
                segments.n_bytes == bits.n_bytes() && (segments.n_rest ? bits.n_bits % 8 == 0 : bits.n_bits == n_bits),
            "queries and both parts of segments must have ceil(n_bits / 8) bytes");
    return {.queries = queries.data(),
            .n_queries = queries.shape(0),
            .weights = weights.data(),
            .weights_per_query = weights.shape(0) != 1,
            .n_bits = n_bits,
            .order = bits,
            .segments = segments.views,
            .n_threads = threads,
            .scanner = chosen_path().scanner};
}

// The nearest rows of all blocks, or of chosen ones; a checked call, without the GIL.
std::vector<std::vector<bitrank::Hit>> hits_of(const bitrank::Search &task, const std::optional<ChosenArrays> &arrays) {
    if (!arrays) return bitrank::search(task);
    const auto &[blocks, floors, n_sure, n_read] = *arrays;
    return bitrank::search_chosen(task, {blocks.data(), floors.data(), blocks.shape(1), n_sure}, n_read.data());
}

void check_chosen(const bitrank::Search &task, const std::optional<ChosenArrays> &arrays) {
    if (!arrays) return;
    const auto &[blocks, floors, n_sure, n_read] = *arrays;
    require(blocks.shape(0) == task.n_queries && floors.shape(0) == task.n_queries && floors.shape(1) == blocks.shape(1) &&
                n_read.shape(0) == task.n_queries,
            "blocks and floors must be (n_queries, n_blocks), and n_read (n_queries)");
    std::int64_t n_blocks = 0;
    for (const bitrank::Segment &segment : task.segments) n_blocks += static_cast<std::int64_t>(segment.n_blocks());
    for (std::size_t i = 0; i < blocks.size(); ++i)
        require(blocks.data()[i] >= 0 && blocks.data()[i] < n_blocks, "blocks must be numbers of blocks");
}

// Hits as ids and distances, padded with -1 and infinity.
void write_hits(const std::vector<std::vector<bitrank::Hit>> &hits, std::size_t width, std::int64_t *ids,
                float *distances) {
    for (std::size_t q = 0; q < hits.size(); ++q)
        for (std::size_t i = 0; i < width; ++i) {
            const bool hit = i < hits[q].size();
            ids[q * width + i] = hit ? hits[q][i].id : -1;
            distances[q * width + i] = hit ? hits[q][i].distance : bitrank::infinity;
        }
}

// Fill ids and distances (n_queries, k) with the k nearest.
void search(Codes queries, Weightings &weightings, const Segments &segments, Matrix<std::int64_t> ids,
            Matrix<float> distances, std::size_t threads, std::optional<ChosenArrays> chosen) {
    bitrank::Search task = search_of(queries, weightings, segments, threads);
    const std::size_t n = queries.shape(0);
    task.k = ids.shape(1);
    require(task.k > 0 && ids.shape(0) == n && distances.shape(0) == n && distances.shape(1) == task.k,
            "ids and distances must be (n_queries, k)");
    check_chosen(task, chosen);
    nb::gil_scoped_release release;
    write_hits(hits_of(task, chosen), task.k, ids.data(), distances.data());
}

// Fill ids and distances (n_queries, k) with the k nearest by the whole of the nearest rows by the bits in blocks.
void search_whole(Codes queries, Weightings &weightings, const Segments &segments, std::size_t shortlist,
                  Codes whole_queries, Weights weights, Bits order, Matrix<std::int64_t> ids, Matrix<float> distances,
                  std::size_t threads, std::optional<ChosenArrays> chosen, std::optional<EstimateArrays> given) {
    bitrank::Search task = search_of(queries, weightings, segments, threads);
    const bitrank::Whole whole = whole_of(whole_queries, weights, order, segments, threads);
    const std::size_t n = queries.shape(0), k = ids.shape(1);
    task.k = shortlist;
    task.sorted = false;
    require(whole.n_queries == n, "there must be as many queries of both kinds");
    require(shortlist > 0 && k > 0 && ids.shape(0) == n && distances.shape(0) == n && distances.shape(1) == k,
            "ids and distances must be (n_queries, k)");
    check_chosen(task, chosen);
    std::optional<bitrank::Estimates> estimates;
    if (given) {
        const auto &[n_tail, low, step, root, terms] = *given;
        require(n_tail <= 2 && n_tail <= segments.n_rest, "n_tail must be at most 2, and the bytes that are not scanned");
        require(terms.shape(0) == n && terms.shape(1) == 3, "terms must be (n_queries, 3)");
        estimates = {n_tail, low, step, root, terms.data()};
    }
    nb::gil_scoped_release release;
    write_hits(bitrank::search_again(whole, hits_of(task, chosen), k, estimates ? &*estimates : nullptr), k, ids.data(),
               distances.data());
}

// Ids and distances of all rows within the radius, padded to the longest list.
auto search_radius(Codes queries, Weightings &weightings, const Segments &segments, float radius, std::size_t threads) {
    bitrank::Search task = search_of(queries, weightings, segments, threads);
    task.k = bitrank::all_rows;
    task.radius = radius;
    std::vector<std::int64_t> ids;
    std::vector<float> distances;
    std::size_t width = 0;
    {
        nb::gil_scoped_release release;
        const auto hits = bitrank::search(task);
        for (const auto &list : hits) width = std::max(width, list.size());
        ids.resize(hits.size() * width);
        distances.resize(hits.size() * width);
        write_hits(hits, width, ids.data(), distances.data());
    }
    const std::size_t n = queries.shape(0);
    return std::make_tuple(matrix_of(std::move(ids), n, width), matrix_of(std::move(distances), n, width));
}

void score(Codes queries, Weights weights, Bits order, const Segments &segments, Matrix<const std::int64_t> rows,
           Matrix<float> out, std::size_t threads) {
    const bitrank::Whole task = whole_of(queries, weights, order, segments, threads);
    require(rows.shape(0) == queries.shape(0) && out.shape(0) == rows.shape(0) && out.shape(1) == rows.shape(1),
            "rows and out must be (n_queries, n)");
    nb::gil_scoped_release release;
    bitrank::score(task, rows.data(), rows.shape(1), out.data());
}

void sorted_rows(Codes codes, Vector<const std::int64_t> ids, Bits order, Vector<std::uint32_t> rows,
                 std::size_t threads) {
    const bitrank::Order bits = order_of(order);
    require(codes.shape(1) == bits.n_bytes() && codes.shape(0) == rows.shape(0), "codes must be (n_rows, n_bytes)");
    require(ids.shape(0) == rows.shape(0), "ids must have one value per row");
    nb::gil_scoped_release release;
    bitrank::sorted_rows(codes.data(), ids.data(), codes.shape(0), bits, threads, rows.data());
}

void build(Codes codes, Vector<const std::uint32_t> rows, Bits order, Array<std::uint8_t, 3> blocks,
           Array<std::uint8_t, 4> bounds, Array<std::uint8_t, 3> supers, std::size_t threads) {
    const bitrank::Order bits = order_of(order);
    const std::size_t n = rows.shape(0), n_blocks = (n + 63) / 64, n_supers = (n_blocks + 63) / 64;
    require(codes.shape(1) == bits.n_bytes() && blocks.size() == n_blocks * 64 * bits.n_bytes() &&
                bounds.size() == n_supers * 128 * bits.n_bytes() && supers.size() == n_supers * 2 * bits.n_bytes(),
            "blocks, bounds and supers must fit the rows");
    nb::gil_scoped_release release;
    for (std::size_t i = 0; i < n; ++i) require(rows.data()[i] < codes.shape(0), "rows must be rows of codes");
    bitrank::build(codes.data(), rows.data(), n, bits, threads, blocks.data(), bounds.data(), supers.data());
}

void restore(Array<const std::uint8_t, 3> blocks, Bits order, Matrix<std::uint8_t> codes, std::size_t threads) {
    const bitrank::Order bits = order_of(order);
    require(codes.shape(1) == bits.n_bytes() && blocks.size() == (codes.shape(0) + 63) / 64 * 64 * bits.n_bytes(),
            "codes must fit the blocks");
    nb::gil_scoped_release release;
    bitrank::restore(blocks.data(), codes.shape(0), bits, threads, codes.data());
}

std::uint64_t checksum(Vector<const std::uint8_t> bytes) {
    nb::gil_scoped_release release;
    return bitrank::checksum(bytes.data(), bytes.shape(0));
}

bitrank::PackedRows packed_rows(const Codes &plus, const Codes &minus, std::size_t n_bits) {
    require(plus.shape(0) == minus.shape(0) && plus.shape(1) == minus.shape(1),
            "plus and minus must have the same shape");
    require(plus.shape(1) == (n_bits + 7) / 8, "plus and minus must have ceil(n_bits / 8) bytes");
    return {plus.data(), minus.data(), plus.shape(0), n_bits};
}

void margins(Codes plus, Codes minus, Vector<const double> weights, Vector<double> out) {
    const auto rows = packed_rows(plus, minus, weights.shape(0));
    require(out.shape(0) == rows.n_rows, "out must have one value per row");
    nb::gil_scoped_release release;
    bitrank::margins(rows, weights.data(), out.data());
}

void combine(Codes plus, Codes minus, Vector<const double> values, Vector<double> out) {
    const auto rows = packed_rows(plus, minus, out.shape(0));
    require(values.shape(0) == rows.n_rows, "values must have one value per row");
    nb::gil_scoped_release release;
    bitrank::combine(rows, values.data(), out.data());
}

void add_gram(Codes plus, Codes minus, Vector<const std::int8_t> signs, double factor, Matrix<double> out,
              Vector<double> total) {
    const auto rows = packed_rows(plus, minus, total.shape(0));
    const bitrank::GramLoops &loops = *chosen_path().gram;
    require(signs.shape(0) == rows.n_rows, "signs must have one value per row");
    require(out.shape(0) == rows.n_bits && out.shape(1) == rows.n_bits, "out must be (n_bits, n_bits)");
    nb::gil_scoped_release release;
    bitrank::add_gram(rows, signs.data(), factor, out.data(), total.data(), loops);
}

std::size_t passive_aggressive(Matrix<const double> order, Matrix<const double> tie, double c_order, double c_tie,
                               double tolerance, std::size_t max_sweeps, Vector<double> weights) {
    const std::size_t n_bits = weights.shape(0);
    require(order.shape(1) == n_bits && tie.shape(1) == n_bits, "order and tie must have n_bits columns");
    nb::gil_scoped_release release;
    return bitrank::passive_aggressive({order.data(), order.shape(0)}, {tie.data(), tie.shape(0)}, n_bits, c_order,
                                       c_tie, tolerance, max_sweeps, weights.data());
}

template <typename Key>
std::size_t tied_groups(Matrix<const Key> keys, Matrix<std::int64_t> groups, Vector<std::int64_t> bounds,
                        Vector<std::int64_t> totals) {
    const std::size_t n_rows = keys.shape(0), room = groups.shape(1);
    require(bounds.shape(0) == n_rows + 1 && totals.shape(0) == n_rows,
            "bounds must have n_rows + 1 values and totals n_rows");
    nb::gil_scoped_release release;
    const auto is_relevant = [](Key key) { return (key & 1) != 0; };
    const auto n_relevant = std::count_if(keys.data(), keys.data() + keys.size(), is_relevant);
    require(groups.shape(0) == 5 && room >= static_cast<std::size_t>(n_relevant),
            "groups must be (5, n), n being at least the number of relevant items");
    std::int64_t *out = groups.data();
    return bitrank::tied_groups(keys.data(), n_rows, keys.shape(1),
                                {out, out + room, out + 2 * room, out + 3 * room, out + 4 * room}, bounds.data(),
                                totals.data());
}

auto lift_limits(Matrix<const float> distances, Vector<const double> totals, Vector<const double> units,
           Vector<const double> asked_totals, Vector<const double> asked_units, double offset, double tie, double pivot,
           double pinned_share, bool any_pinned) {
    const std::size_t n = distances.shape(0), k = distances.shape(1);
    require(k > 0 && totals.shape(0) == n && units.shape(0) == n && asked_totals.shape(0) == n &&
                asked_units.shape(0) == n,
            "distances must be (n_queries, k), and totals and units one value per query");
    std::vector<float> out;
    {
        nb::gil_scoped_release release;
        out = bitrank::lift_limits({n, k, distances.data(), {totals.data(), units.data()}, {asked_totals.data(), asked_units.data()},
                              offset, tie, pivot, pinned_share, any_pinned});
    }
    return matrix_of(std::move(out), 3, n);
}

// Items that judged queries name, the similarities of the nearest of these, and which they are; -1 pads rows of items.
auto named(Matrix<const std::int64_t> judged, Matrix<const float> similarities, Vector<const float> floors,
           Vector<const float> pinned_floors, float offset, Vector<const std::int64_t> starts,
           Vector<const std::int64_t> items, Vector<const std::uint8_t> pinned, std::size_t threads) {
    const std::size_t n = judged.shape(0), n_judged = judged.shape(1), n_lists = starts.shape(0) - 1;
    require(similarities.shape(0) == n && similarities.shape(1) == n_judged && floors.shape(0) == n &&
                pinned_floors.shape(0) == n,
            "judged and similarities must be (n_queries, n_judged), and floors one per query");
    require(starts.shape(0) > 0 && items.shape(0) == pinned.shape(0) &&
                starts.data()[n_lists] == static_cast<std::int64_t>(items.shape(0)),
            "starts must end with the number of items");
    std::vector<std::int64_t> found, places;
    std::vector<float> values;
    std::size_t width = 0;
    {
        nb::gil_scoped_release release;
        for (std::size_t i = 0; i < judged.size(); ++i)
            require(judged.data()[i] < static_cast<std::int64_t>(n_lists), "judged must be rows of starts");
        const auto lists = bitrank::named({judged.data(), similarities.data(), n, n_judged, floors.data(),
                                           pinned_floors.data(), offset},
                                          {starts.data(), n_lists, items.data(), pinned.data()}, threads);
        for (const auto &list : lists) width = std::max(width, list.size());
        found.assign(n * width, -1);
        places.assign(n * width, -1);
        values.assign(n * width, 0.0f);
        for (std::size_t q = 0; q < n; ++q)
            for (std::size_t i = 0; i < lists[q].size(); ++i) {
                found[q * width + i] = lists[q][i].item;
                values[q * width + i] = lists[q][i].similarity;
                places[q * width + i] = lists[q][i].judged;
            }
    }
    return std::make_tuple(matrix_of(std::move(found), n, width), matrix_of(std::move(values), n, width),
                           matrix_of(std::move(places), n, width));
}

void lift(Matrix<std::int64_t> ids, Matrix<float> distances, Matrix<std::int64_t> by, Matrix<const std::int64_t> items,
          Matrix<const float> similarities, Matrix<const std::int64_t> judged, Matrix<const float> item_distances,
          Vector<const double> totals, Vector<const double> units, double tie, double pivot, std::size_t most,
          std::size_t threads) {
    const std::size_t n = ids.shape(0), k = ids.shape(1), width = items.shape(1);
    require(distances.shape(0) == n && distances.shape(1) == k && by.shape(0) == n && by.shape(1) == k,
            "ids, distances and by must be (n_queries, k)");
    require(items.shape(0) == n && similarities.shape(0) == n && similarities.shape(1) == width &&
                judged.shape(0) == n && judged.shape(1) == width && item_distances.shape(0) == n &&
                item_distances.shape(1) == width,
            "items, similarities, judged and item_distances must be (n_queries, width)");
    require(totals.shape(0) == n && units.shape(0) == n, "totals and units must have one value per query");
    nb::gil_scoped_release release;
    bitrank::lift({n, k, width, ids.data(), distances.data(), items.data(), similarities.data(), judged.data(),
                   item_distances.data(), {totals.data(), units.data()}, tie, pivot, most, by.data()},
                  threads);
}

}  // namespace

NB_MODULE(_kernel, module) {
    nb::set_leak_warnings(false);  // what a cache holds at the end of the process is no leak
    using namespace nb::literals;
    module.def("weighted_hamming", &weighted_hamming, "queries"_a, "codes"_a, "weights"_a, "out"_a.noconvert(),
               "threads"_a = 1);
    module.def("weighted_hamming_to_rows", &weighted_hamming_to_rows, "queries"_a, "codes"_a, "rows"_a, "weights"_a,
               "out"_a.noconvert(), "threads"_a = 1);
    module.def("split_reals", &split_reals, "reals"_a, "codes"_a.noconvert(), "sizes"_a.noconvert());
    module.def("split_products", &split_products, "numbers"_a, "columns"_a, "weights"_a, "codes"_a.noconvert(),
               "sizes"_a.noconvert());
    module.def("round_to_exact_sums", &round_to_exact_sums, "weights"_a.noconvert());
    module.def("center", &center<float>, "vectors"_a.noconvert(), "length"_a, "center"_a.none(), "zeros"_a, "out"_a.noconvert(),
               "squares"_a.noconvert());
    module.def("center", &center<double>, "vectors"_a, "length"_a, "center"_a.none(), "zeros"_a, "out"_a.noconvert(),
               "squares"_a.noconvert());
    module.def("shift", &shift, "rows"_a.noconvert(), "shift"_a, "most"_a);
    module.def("hamming", &hamming, "queries"_a, "codes"_a, "out"_a.noconvert(), "threads"_a = 1);
    nb::class_<bitrank::Sample>(module, "Sample")
        .def("__init__", [](bitrank::Sample *self, Codes codes) {
            require(codes.shape(1) > 0 && codes.shape(1) < 8192, "codes must have 1 to 8191 bytes");
            new (self) bitrank::Sample(codes.data(), codes.shape(0), codes.shape(1));
        }, "codes"_a)
        .def("__len__", &bitrank::Sample::size)
        .def("nearest_sums", &nearest_sums, "queries"_a, "skipped"_a, "last"_a, "sums"_a.noconvert());
    nb::class_<Segments>(module, "Segments")
        .def(nb::init<std::vector<SegmentArrays>, std::size_t, std::size_t>(), "segments"_a, "n_bytes"_a, "n_rest"_a = 0);
    nb::class_<Weightings>(module, "Weightings").def(nb::init<const Weights &, const Bits &>(), "weights"_a, "order"_a);
    module.def("search", &search, "queries"_a, "weights"_a, "segments"_a, "ids"_a.noconvert(), "distances"_a.noconvert(),
               "threads"_a, "chosen"_a = nb::none());
    module.def("search_whole", &search_whole, "queries"_a, "weights"_a, "segments"_a, "shortlist"_a, "whole_queries"_a,
               "whole_weights"_a, "order"_a, "ids"_a.noconvert(), "distances"_a.noconvert(), "threads"_a,
               "chosen"_a = nb::none(), "estimates"_a = nb::none());
    module.def("search_radius", &search_radius, "queries"_a, "weights"_a, "segments"_a, "radius"_a, "threads"_a);
    module.def("score", &score, "queries"_a, "weights"_a, "order"_a, "segments"_a, "rows"_a, "out"_a.noconvert(), "threads"_a);
    module.def("sorted_rows", &sorted_rows, "codes"_a, "ids"_a, "order"_a, "rows"_a.noconvert(), "threads"_a);
    module.def("build", &build, "codes"_a, "rows"_a, "order"_a, "blocks"_a.noconvert(), "bounds"_a.noconvert(),
               "supers"_a.noconvert(), "threads"_a);
    module.def("restore", &restore, "blocks"_a, "order"_a, "codes"_a.noconvert(), "threads"_a);
    module.def("checksum", &checksum, "data"_a);
    module.def("kernel_paths", &bitrank::path_names);
    module.def("margins", &margins, "plus"_a, "minus"_a, "weights"_a, "out"_a.noconvert());
    module.def("combine", &combine, "plus"_a, "minus"_a, "values"_a, "out"_a.noconvert());
    module.def("add_gram", &add_gram, "plus"_a, "minus"_a, "signs"_a, "factor"_a, "out"_a.noconvert(),
               "total"_a.noconvert());
    module.def("passive_aggressive", &passive_aggressive, "order"_a, "tie"_a, "c_order"_a, "c_tie"_a, "tolerance"_a,
               "max_sweeps"_a, "weights"_a.noconvert());
    module.def("tied_groups", &tied_groups<std::uint32_t>, "keys"_a.noconvert(), "groups"_a.noconvert(),
               "bounds"_a.noconvert(), "totals"_a.noconvert());
    module.def("tied_groups", &tied_groups<std::uint64_t>, "keys"_a.noconvert(), "groups"_a.noconvert(),
               "bounds"_a.noconvert(), "totals"_a.noconvert());
    module.def("named", &named, "judged"_a, "similarities"_a, "floors"_a, "pinned_floors"_a, "offset"_a, "starts"_a,
               "items"_a, "pinned"_a, "threads"_a);
    module.def("lift_limits", &lift_limits, "distances"_a, "totals"_a, "units"_a, "asked_totals"_a, "asked_units"_a, "offset"_a,
               "tie"_a, "pivot"_a, "pinned_share"_a, "any_pinned"_a);
    module.def("lift", &lift, "ids"_a.noconvert(), "distances"_a.noconvert(), "by"_a.noconvert(), "items"_a,
               "similarities"_a, "judged"_a, "item_distances"_a, "totals"_a, "units"_a, "tie"_a, "pivot"_a, "most"_a,
               "threads"_a);
}
