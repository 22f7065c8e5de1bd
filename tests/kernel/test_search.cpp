// Scans and searches on every path against plain loops, and searches from many threads.
#include <bit>
#include <cmath>
#include <limits>
#include <thread>

#include "paths.hpp"
#include "search.hpp"
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
    const Segment segment{data.n_rows, built.blocks.data(), built.bounds.data(), built.supers.data(), built.ids.data(),
                          built.least_ids.data(), masked ? built.wanted.data() : nullptr};
    return {data.queries.data(), data.n_queries, data.weights.data(), data.n_queries > 1,
            {data.n_bits, built.bits.data()}, {segment}, k, radius, n_threads, bitrank::path(path)->scanner};
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
            below(3) ? std::numeric_limits<float>::infinity() : static_cast<float>(below(data.n_bits + 1)) / 4;
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
            score(task, rows.data(), 2, scores.data());
            for (std::size_t q = 0; q < data.n_queries; ++q) {
                check(scores[2 * q] == reference_distance(data, built, row, q), "the same score", where);
                check(std::isinf(scores[2 * q + 1]), "row -1 at infinity", where);
            }
        }
    }
}

namespace {

// Tables of integer weights per bit for the look-ups of a path, of which `query` differs.
std::vector<std::uint8_t> tables_of(const std::vector<unsigned> &weights, const std::vector<std::uint8_t> &query,
                                    const Lookups &lookups) {
    std::vector<std::uint8_t> out(lookups.n_tables() * lookups.n_entries());
    for (std::size_t table = 0; table < lookups.n_tables(); ++table)
        for (std::size_t value = 0; value < lookups.n_entries(); ++value) {
            unsigned sum = 0;
            for (std::size_t i = 0; i < lookups.index_bits; ++i) {
                const std::size_t bit = lookups.bit(table, i);
                if (bit < weights.size() && (value >> i & 1) != (query[bit / 8] >> (7 - bit % 8) & 1u)) sum += weights[bit];
            }
            out[table * lookups.n_entries() + value] = static_cast<std::uint8_t>(sum);
        }
    return out;
}

// The sum of the 16-bit functions for one row: averages of 16 look-ups, rounded up pair by pair, times factors.
unsigned sum_of_averages(const Lookups &lookups, const std::vector<std::uint8_t> &tables,
                         const std::vector<std::uint32_t> &factors, const std::vector<std::uint8_t> &row) {
    unsigned sum = 0;
    for (std::size_t group = 0; group < lookups.n_groups(); ++group) {
        std::vector<unsigned> values(16, 0);
        for (std::size_t table = group * 16; table < std::min(lookups.n_tables(), group * 16 + 16); ++table) {
            std::size_t index = 0;
            for (std::size_t i = 0; i < lookups.index_bits; ++i) {
                const std::size_t bit = lookups.bit(table, i);
                if (bit < row.size() * 8) index |= std::size_t{row[bit / 8] >> (7 - bit % 8) & 1u} << i;
            }
            values[table % 16] = tables[table * lookups.n_entries() + index];
        }
        for (std::size_t n = 8; n; n /= 2)
            for (std::size_t i = 0; i < n; ++i) values[i] = (values[2 * i] + values[2 * i + 1] + 1) / 2;
        sum += values[0] * (factors[group] & 0xffff);
    }
    return sum;
}

}  // namespace

// The scans alone, with arbitrary tables and limits for four queries: all paths find the rows of plain sums.
void test_scans(std::size_t n_cases) {
    for (std::size_t turn = 0; turn < n_cases; ++turn) {
        const bool wide = turn % 2;
        const std::size_t n_bytes = 1 + below(wide ? 130 : 16), n_bits = 8 * n_bytes;
        std::vector<std::uint8_t> blocks(64 * n_bytes * 64), bounds(n_bytes * 128), free(n_bytes), shared(n_bytes * 32);
        for (auto *bytes : {&blocks, &bounds, &free})
            for (auto &byte : *bytes) byte = static_cast<std::uint8_t>(random_bits());
        for (std::size_t byte = 0; byte < n_bytes; ++byte)  // some blocks of equal rows
            for (std::size_t b = 0; b < 64; b += 3) bounds[(byte * 2 + 1) * 64 + b] = 255;
        for (auto &byte : shared) byte = static_cast<std::uint8_t>(below(1 + 400 / n_bytes) & 127);
        // No entry exceeds 255, and no sum 16 bits.
        const unsigned heaviest = wide ? 43 : 4;
        std::vector<std::uint32_t> factors(32);
        for (auto &factor : factors) factor = static_cast<std::uint32_t>(1 + below(14)) * 0x10001u;
        std::vector<unsigned> weights[queries_per_scan];
        std::vector<std::uint8_t> queries[queries_per_scan];
        std::uint16_t limits[queries_per_scan];
        const std::size_t test_from = below(70);
        // Read as in a collection that fits the cache, nearly fits it, or does not.
        const std::size_t total_bytes = std::size_t{10'000'000} * (1 + below(3));
        for (std::size_t q = 0; q < queries_per_scan; ++q) {
            for (std::size_t i = 0; i < n_bits; ++i) weights[q].push_back(static_cast<unsigned>(below(heaviest)));
            for (std::size_t i = 0; i < n_bytes; ++i) queries[q].push_back(static_cast<std::uint8_t>(random_bits()));
            const std::size_t most = wide ? n_bits * 10 : std::min<std::size_t>(255, n_bits * 2);
            limits[q] = static_cast<std::uint16_t>(below(most));
        }
        const std::uint64_t live = random_bits() | random_bits();
        const std::uint64_t now = live & random_bits() & random_bits() & (below(2) ? ~std::uint64_t{0} : random_bits());
        std::vector<std::uint64_t> survivors(queries_per_scan * 64);
        for (const std::string &path : path_names()) {
            const Scanner &one = *bitrank::path(path)->scanner;
            const std::string where = path + ", " + std::to_string(n_bytes) + " bytes";
            const Lookups lookups{n_bytes, one.index_bits};
            std::vector<std::uint8_t> rows[queries_per_scan];
            Tables tables[queries_per_scan];
            for (std::size_t q = 0; q < queries_per_scan; ++q) {
                rows[q] = tables_of(weights[q], queries[q], lookups);
                tables[q] = {n_bytes,   rows[q].data(), shared.data(),  queries[q].data(),
                             limits[q], limits[q],      factors.data(), test_from};
            }
            const auto sum = [&](std::size_t q, const std::vector<std::uint8_t> &row) {
                if (wide) return sum_of_averages(lookups, rows[q], factors, row);
                unsigned out = 0;
                for (std::size_t bit = 0; bit < n_bits; ++bit)
                    out += (row[bit / 8] ^ queries[q][bit / 8]) >> (7 - bit % 8) & 1 ? weights[q][bit] : 0;
                return out;
            };
            const auto row_of = [&](std::size_t b, std::size_t lane) {
                std::vector<std::uint8_t> row(n_bytes);
                for (std::size_t byte = 0; byte < n_bytes; ++byte) row[byte] = blocks[(b * n_bytes + byte) * 64 + lane];
                return row;
            };
            const auto check_rows = [&](std::size_t n_queries) {
                for (std::uint64_t left = now; left; left &= left - 1) {
                    const auto b = static_cast<std::size_t>(std::countr_zero(left));
                    for (std::size_t lane = 0; lane < 64; ++lane) {
                        const std::vector<std::uint8_t> row = row_of(b, lane);
                        for (std::size_t q = 0; q < n_queries; ++q)
                            check((survivors[q * 64 + b] >> lane & 1) == (sum(q, row) <= limits[q]), "rows by plain sums",
                                  where);
                    }
                }
            };
            struct Survivors {
                std::uint64_t *words;
                std::size_t n_queries;
                static void take(void *self, std::size_t b, const std::uint64_t *rows) {
                    const auto &out = *static_cast<Survivors *>(self);
                    for (std::size_t q = 0; q < out.n_queries; ++q) out.words[q * 64 + b] = rows[q];
                }
            } taken{survivors.data(), 1};
            std::fill(survivors.begin(), survivors.end(), 0);
            if (wide) one.rows16(blocks.data(), now, live, total_bytes, tables[0], {Survivors::take, &taken});
            else one.rows8(blocks.data(), now, live, total_bytes, tables[0], survivors.data());
            check_rows(1);
            std::fill(survivors.begin(), survivors.end(), 0);
            taken.n_queries = queries_per_scan;
            if (wide) {
                std::vector<std::uint16_t> sums(64 * 64);
                one.sums16(blocks.data(), now, total_bytes, tables[0], sums.data());
                for (std::uint64_t left = now; left; left &= left - 1) {
                    const auto b = static_cast<std::size_t>(std::countr_zero(left));
                    std::uint64_t within = 0;
                    for (std::size_t lane = 0; lane < 64; ++lane) {
                        const unsigned expected = sum(0, row_of(b, lane));
                        check(sums[b * 64 + place_of_sum(lane)] == expected, "plain sums", where);
                        within |= std::uint64_t{expected <= limits[0]} << lane;
                    }
                    check(one.within16(&sums[b * 64], limits[0]) == within, "sums within the limit", where);
                }
                std::vector<std::uint8_t> prepared(64 * 64 * lookups.n_steps());
                one.prepare(blocks.data(), now, n_bytes, prepared.data());
                one.rows16_of_four(blocks.data(), prepared.data(), blocks.data(), now, tables, {Survivors::take, &taken});
            } else {
                one.rows8_of_four(blocks.data(), now, live, tables, survivors.data());
            }
            check_rows(queries_per_scan);
            check((wide ? one.blocks16 : one.blocks8)(bounds.data(), tables[0]) ==
                      (wide ? scalar_scanner.blocks16 : scalar_scanner.blocks8)(bounds.data(), tables[0]),
                  "the same blocks", where);
            check(one.uniform(bounds.data(), free.data(), n_bytes) ==
                      scalar_scanner.uniform(bounds.data(), free.data(), n_bytes),
                  "the same uniform blocks", where);
        }
    }
}

// Searches of one segment from several threads, each with threads of its own.
void test_concurrent_searches() {
    // Enough super-blocks for two threads to share one query, and codes too long to skip many of them.
    const Data data = make_data(700'000, 256, 3, 1);
    const Built built(data, 2);
    const float radius = std::numeric_limits<float>::infinity();
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
