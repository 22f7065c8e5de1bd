// Searches on every path against plain loops, and from many threads.
#include <cmath>
#include <thread>

#include "paths.hpp"
#include "search/search.hpp"
#include "testing.hpp"

using namespace bitrank;

namespace {

struct Data {
    std::size_t n_rows, n_bits, n_bytes, n_queries;
    std::vector<std::uint8_t> codes, queries;
    std::vector<float> weights;  // one row per query
    std::vector<std::int64_t> ids;
};

Data make_data(std::size_t n_rows, std::size_t n_bits, std::size_t n_queries, std::size_t kind) {
    Data data{n_rows, n_bits, (n_bits + 7) / 8, n_queries, random_codes(n_rows, n_bits),
              random_codes(n_queries, n_bits), {}, {}};
    // Repeated codes, as real data has.
    for (std::size_t i = n_rows / 2; i < n_rows * 3 / 4; ++i)
        std::copy_n(&data.codes[0], data.n_bytes, &data.codes[i * data.n_bytes]);
    if (n_queries && n_rows) std::copy_n(&data.codes[0], data.n_bytes, &data.queries[0]);
    std::uniform_real_distribution<float> uniform(0, 1);
    for (std::size_t i = 0; i < n_queries * n_bits; ++i) {
        const float u = uniform(random_bits);
        const float kinds[] = {1.0f, u, std::exp(-static_cast<float>(i % n_bits) / 8), u < 0.7f ? 0.0f : u, 0.0f};
        data.weights.push_back(kinds[kind]);
    }
    for (std::size_t i = 0; i < n_rows; ++i) data.ids.push_back(static_cast<std::int64_t>(i * 3));
    std::shuffle(data.ids.begin(), data.ids.end(), random_bits);
    return data;
}

// The arrays of one segment of an Index.
struct Built {
    std::vector<std::uint16_t> bits;
    std::vector<std::uint32_t> rows;
    std::vector<std::uint8_t> blocks, bounds, supers;
    std::vector<std::int64_t> ids, least_ids;
    std::vector<std::uint64_t> wanted;

    Built(const Data &data, std::size_t n_threads) {
        for (std::size_t i = 0; i < data.n_bits; ++i) bits.push_back(static_cast<std::uint16_t>(i));
        std::shuffle(bits.begin(), bits.end(), random_bits);
        const Order order{data.n_bits, bits.data()};
        const std::size_t n_blocks = (data.n_rows + 63) / 64, n_supers = (n_blocks + 63) / 64;
        rows.resize(data.n_rows);
        blocks.resize(n_blocks * data.n_bytes * 64);
        bounds.resize(n_supers * data.n_bytes * 128);
        supers.resize(n_supers * data.n_bytes * 2);
        sorted_rows(data.codes.data(), data.ids.data(), data.n_rows, order, n_threads, rows.data());
        build(data.codes.data(), rows.data(), data.n_rows, order, n_threads, blocks.data(), bounds.data(),
              supers.data());
        for (const std::uint32_t row : rows) ids.push_back(data.ids[row]);
        for (std::size_t i = 0; i < data.n_rows; ++i) {
            if (i % 64 == 0) least_ids.push_back(ids[i]);
            least_ids.back() = std::min(least_ids.back(), ids[i]);
        }
        for (std::size_t b = 0; b < n_blocks; ++b) wanted.push_back(random_bits());
        std::vector<std::uint8_t> back(data.codes.size());
        restore(blocks.data(), data.n_rows, order, n_threads, back.data());
        for (std::size_t i = 0; i < data.n_rows; ++i)
            check(std::equal(&back[i * data.n_bytes], &back[i * data.n_bytes] + data.n_bytes,
                             &data.codes[rows[i] * data.n_bytes]), "restore returns the codes", "");
    }
    bool is_wanted(std::size_t row, bool masked) const { return !masked || wanted[row / 64] >> row % 64 & 1; }
};

float reference_distance(const Data &data, const Built &built, std::size_t row, std::size_t q) {
    return plain_distance(&data.codes[built.rows[row] * data.n_bytes], &data.queries[q * data.n_bytes],
                          &data.weights[q * data.n_bits], data.n_bits);
}

std::vector<Hit> plain_search(const Data &data, const Built &built, std::size_t q, std::size_t k, float radius,
                              bool masked) {
    std::vector<Hit> hits;
    for (std::size_t i = 0; i < data.n_rows; ++i) {
        if (!built.is_wanted(i, masked)) continue;
        const float distance = reference_distance(data, built, i, q);
        if (distance <= radius) hits.push_back({distance, built.ids[i], static_cast<std::int64_t>(i)});
    }
    std::sort(hits.begin(), hits.end());
    if (hits.size() > k) hits.resize(k);
    return hits;
}

Search task_of(const Data &data, const Built &built, const std::string &path, std::size_t k, float radius, bool masked,
               std::size_t n_threads) {
    const Segment segment{.n_rows = data.n_rows,
                          .blocks = built.blocks.data(),
                          .bounds = built.bounds.data(),
                          .supers = built.supers.data(),
                          .ids = built.ids.data(),
                          .least_ids = built.least_ids.data(),
                          .wanted = masked ? built.wanted.data() : nullptr,
                          .rest = nullptr};
    return {.queries = data.queries.data(),
            .n_queries = data.n_queries,
            .weights = data.weights.data(),
            .weights_per_query = data.n_queries > 1,
            .order = {data.n_bits, built.bits.data()},
            .segments = {segment},
            .k = k,
            .radius = radius,
            .n_threads = n_threads,
            .scanner = bitrank::path(path)->scanner};
}

void check_equal(const std::vector<Hit> &hits, const std::vector<Hit> &expected, const std::string &where) {
    check(hits.size() == expected.size(), "the same number of hits", where);
    for (std::size_t i = 0; i < hits.size(); ++i)
        check(hits[i].id == expected[i].id && hits[i].distance == expected[i].distance &&
                  hits[i].row == expected[i].row,
              "the same hit", where);
}

}  // namespace

void test_search(std::size_t n_cases) {
    const std::size_t lengths[] = {1, 7, 32, 64, 75, 128, 129, 256, 511, 1024, 2100};
    for (std::size_t turn = 0; turn < n_cases; ++turn) {
        const std::size_t n_rows = 1 + below(turn % 8 ? 700 : 90'000), n_queries = 1 + below(turn % 4 ? 4 : 12);
        const Data data = make_data(n_rows, lengths[turn % 11], n_queries, turn % 5);
        const Built built(data, 1 + below(3));
        const std::size_t k = 1 + below(turn % 3 ? 20 : 2000), n_threads = 1 + below(4);
        const bool masked = below(2);
        const float radius =
            below(3) ? infinity : static_cast<float>(below(data.n_bits + 1)) / 4;
        for (const std::string &path : path_names()) {
            const std::string where = path + ", " + std::to_string(data.n_rows) + " x " + std::to_string(data.n_bits) +
                                      ", kind " + std::to_string(turn % 5) + ", k " + std::to_string(k);
            const Search task = task_of(data, built, path, k, radius, masked, n_threads);
            const auto hits = search(task);
            for (std::size_t q = 0; q < data.n_queries; ++q)
                check_equal(hits[q], plain_search(data, built, q, k, radius, masked), where);
            const std::size_t row = below(data.n_rows);
            std::vector<float> scores(2 * data.n_queries);
            std::vector<std::int64_t> rows;
            for (std::size_t q = 0; q < data.n_queries; ++q)
                rows.insert(rows.end(), {static_cast<std::int64_t>(row), -1});
            const bitrank::Whole whole{.queries = task.queries,
                                       .n_queries = task.n_queries,
                                       .weights = task.weights,
                                       .weights_per_query = task.weights_per_query,
                                       .n_bits = data.n_bits,
                                       .order = task.order,
                                       .segments = task.segments,
                                       .n_threads = n_threads,
                                       .scanner = task.scanner};
            score(whole, rows.data(), 2, scores.data());
            for (std::size_t q = 0; q < data.n_queries; ++q) {
                check(scores[2 * q] == reference_distance(data, built, row, q), "the same score", where);
                check(std::isinf(scores[2 * q + 1]), "row -1 at infinity", where);
            }
        }
    }
}

// Searches of one segment from several threads, each with threads of its own.
void test_concurrent_searches() {
    // Enough super-blocks for two threads to share one query, and codes too long to skip many of them.
    const Data data = make_data(700'000, 256, 3, 1);
    const Built built(data, 2);
    const float radius = infinity;
    const Search task = task_of(data, built, "", 25, radius, false, 3);
    const auto expected = search(task);
    check_equal(expected[1], plain_search(data, built, 1, 25, radius, false), "threads");
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
            for (int turn = 0; turn < 6; ++turn) {
                Search part = task;
                part.n_threads = 1 + static_cast<std::size_t>((t + turn) % 5);
                part.n_queries = 1 + static_cast<std::size_t>(turn % 3);
                part.weights_per_query = true;
                const auto hits = search(part);
                for (std::size_t q = 0; q < part.n_queries; ++q) check_equal(hits[q], expected[q], "threads");
            }
        });
    for (auto &thread : threads) thread.join();
}
