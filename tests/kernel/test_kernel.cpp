// The kernel without Python: every path against a plain reference, and searches from many threads. Built and run by
// `make sanitize` (AddressSanitizer, ThreadSanitizer) and, for 64-bit ARM under qemu, by `make test-neon`.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "../../src/kernel/checksum.hpp"
#include "../../src/kernel/distances.hpp"
#include "../../src/kernel/layout.hpp"
#include "../../src/kernel/search.hpp"
#include "../../src/kernel/ties.hpp"

using namespace bitrank;

namespace {

std::mt19937_64 random_bits(1);

std::size_t below(std::size_t n) { return random_bits() % n; }

void check(bool condition, const char *what, const std::string &where) {
    if (condition) return;
    std::fprintf(stderr, "FAILED: %s (%s)\n", what, where.c_str());
    std::exit(1);
}

struct Data {
    std::size_t n_rows, n_bits, n_bytes, n_queries;
    std::vector<std::uint8_t> codes, queries;
    std::vector<float> weights;  // one row a query
    std::vector<std::int64_t> ids;
};

std::vector<std::uint8_t> random_codes(std::size_t n, std::size_t n_bits) {
    const std::size_t n_bytes = (n_bits + 7) / 8;
    std::vector<std::uint8_t> out(n * n_bytes);
    for (auto &byte : out) byte = static_cast<std::uint8_t>(random_bits());
    const auto used = static_cast<std::uint8_t>(0xff << (8 * n_bytes - n_bits));
    for (std::size_t i = 0; i < n; ++i) out[i * n_bytes + n_bytes - 1] &= used;
    return out;
}

Data random_data(std::size_t n_rows, std::size_t n_bits, std::size_t n_queries, std::size_t kind) {
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

// What an Index holds: one segment, with its arrays.
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
                             &data.codes[rows[i] * data.n_bytes]), "restore gives the codes back", "");
    }
    bool is_wanted(std::size_t row, bool masked) const { return !masked || wanted[row / 64] >> row % 64 & 1; }
};

float plain_distance(const std::uint8_t *a, const std::uint8_t *b, const float *weights, std::size_t n_bits) {
    float sum = 0;
    for (std::size_t byte = 0; byte < (n_bits + 7) / 8; ++byte) {
        float of_byte = 0;
        for (std::size_t bit = byte * 8; bit < std::min(n_bits, byte * 8 + 8); ++bit)
            if ((a[byte] ^ b[byte]) >> (7 - bit % 8) & 1) of_byte += weights[bit];
        sum += of_byte;
    }
    return sum;
}

float plain_distance(const Data &data, const Built &built, std::size_t row, std::size_t q) {
    return plain_distance(&data.codes[built.rows[row] * data.n_bytes], &data.queries[q * data.n_bytes],
                          &data.weights[q * data.n_bits], data.n_bits);
}

std::vector<Hit> plain_search(const Data &data, const Built &built, std::size_t q, std::size_t k, float radius,
                              bool masked) {
    std::vector<Hit> hits;
    for (std::size_t i = 0; i < data.n_rows; ++i) {
        if (!built.is_wanted(i, masked)) continue;
        const float distance = plain_distance(data, built, i, q);
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
            {data.n_bits, built.bits.data()}, {segment}, k, radius, n_threads, scanner(path)};
}

void check_equal(const std::vector<Hit> &found, const std::vector<Hit> &expected, const std::string &where) {
    check(found.size() == expected.size(), "as many hits", where);
    for (std::size_t i = 0; i < found.size(); ++i)
        check(found[i].id == expected[i].id && found[i].distance == expected[i].distance &&
                  found[i].row == expected[i].row,
              "the same hit", where);
}

void test_search(std::size_t n_cases) {
    const std::size_t lengths[] = {1, 7, 32, 64, 75, 128, 129, 256, 511, 1024, 2100};
    for (std::size_t turn = 0; turn < n_cases; ++turn) {
        const Data data = random_data(below(turn % 8 ? 700 : 90'000) + 1, lengths[turn % 11], 1 + below(4), turn % 5);
        const Built built(data, 1 + below(3));
        const std::size_t k = 1 + below(turn % 3 ? 20 : 2000), n_threads = 1 + below(4);
        const bool masked = below(2);
        const float radius =
            below(3) ? std::numeric_limits<float>::infinity() : static_cast<float>(below(data.n_bits + 1)) / 4;
        for (const std::string &path : scanner_names()) {
            const std::string where = path + ", " + std::to_string(data.n_rows) + " x " + std::to_string(data.n_bits) +
                                      ", kind " + std::to_string(turn % 5) + ", k " + std::to_string(k);
            const Search task = task_of(data, built, path, k, radius, masked, n_threads);
            const auto found = search(task);
            for (std::size_t q = 0; q < data.n_queries; ++q)
                check_equal(found[q], plain_search(data, built, q, k, radius, masked), where);
            std::vector<std::int64_t> rows{static_cast<std::int64_t>(below(data.n_rows)), -1};
            std::vector<float> scores(2 * data.n_queries);
            std::vector<std::int64_t> each;
            for (std::size_t q = 0; q < data.n_queries; ++q) each.insert(each.end(), rows.begin(), rows.end());
            score(task, each.data(), 2, scores.data());
            for (std::size_t q = 0; q < data.n_queries; ++q) {
                check(scores[2 * q] == plain_distance(data, built, static_cast<std::size_t>(rows[0]), q),
                      "the same score", where);
                check(std::isinf(scores[2 * q + 1]), "no row, no score", where);
            }
        }
    }
}

// The scans themselves, with tables of any content: the paths agree lane by lane.
void test_scans(std::size_t n_cases) {
    for (std::size_t turn = 0; turn < n_cases; ++turn) {
        const std::size_t n_bytes = 1 + below(turn % 2 ? 16 : 200);
        std::vector<std::uint8_t> blocks(64 * n_bytes * 64), bounds(n_bytes * 128), query(n_bytes), free(n_bytes);
        std::vector<std::uint8_t> rows(n_bytes * 32), shared(n_bytes * 32);
        for (auto *bytes : {&blocks, &bounds, &query, &free})
            for (auto &byte : *bytes) byte = static_cast<std::uint8_t>(random_bits());
        for (std::size_t byte = 0; byte < n_bytes; ++byte)  // some blocks of equal rows
            for (std::size_t b = 0; b < 64; b += 3) bounds[(byte * 2 + 1) * 64 + b] = 255;
        for (auto *bytes : {&rows, &shared})
            for (auto &byte : *bytes) byte = static_cast<std::uint8_t>(below(1 + 400 / n_bytes) & 127);
        Tables tables{n_bytes, rows.data(), shared.data(), query.data(), 0};
        const std::uint64_t live = random_bits() | random_bits();
        const std::uint64_t now = live & (below(2) ? ~std::uint64_t{0} : random_bits());
        for (const std::string &path : scanner_names()) {
            const Scanner &one = *scanner(path);
            const std::string where = path + ", " + std::to_string(n_bytes) + " bytes";
            std::uint64_t expected[64], found[64];
            for (const bool wide : {false, true}) {
                tables.limit = static_cast<std::uint16_t>(wide ? below(30'000) : below(255));
                (wide ? scalar_scanner.rows16 : scalar_scanner.rows8)(blocks.data(), now, live, tables, expected);
                (wide ? one.rows16 : one.rows8)(blocks.data(), now, live, tables, found);
                for (std::uint64_t left = now; left; left &= left - 1) {
                    const int b = std::countr_zero(left);
                    check(found[b] == expected[b], "the same rows", where);
                    std::uint64_t plain = 0;
                    for (std::size_t lane = 0; lane < 64; ++lane) {
                        std::size_t sum = 0;
                        for (std::size_t byte = 0; byte < n_bytes; ++byte) {
                            const unsigned value = blocks[(static_cast<std::size_t>(b) * n_bytes + byte) * 64 + lane];
                            sum += rows[byte * 32 + (value >> 4)] + rows[byte * 32 + 16 + (value & 15)];
                        }
                        plain |= std::uint64_t{sum <= tables.limit} << lane;
                    }
                    check(found[b] == plain, "rows as by plain sums", where);
                }
                check((wide ? one.blocks16 : one.blocks8)(bounds.data(), tables) ==
                          (wide ? scalar_scanner.blocks16 : scalar_scanner.blocks8)(bounds.data(), tables),
                      "the same blocks", where);
            }
            check(one.uniform(bounds.data(), free.data(), n_bytes) ==
                      scalar_scanner.uniform(bounds.data(), free.data(), n_bytes),
                  "the same uniform blocks", where);
        }
    }
}

// Readers of one segment while others build and search their own.
void test_threads() {
    const Data data = random_data(300'000, 64, 3, 1);
    const Built built(data, 2);
    const Search task = task_of(data, built, "", 25, std::numeric_limits<float>::infinity(), false, 3);
    const auto expected = search(task);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
            for (int turn = 0; turn < 3; ++turn) {
                Search mine = task;
                mine.n_threads = 1 + static_cast<std::size_t>((t + turn) % 4);
                mine.n_queries = 1 + static_cast<std::size_t>(turn);
                mine.weights_per_query = true;
                const auto found = search(mine);
                for (std::size_t q = 0; q < mine.n_queries; ++q) check_equal(found[q], expected[q], "threads");
            }
        });
    for (auto &thread : threads) thread.join();
}

void test_distances() {
    const Data data = random_data(500, 75, 3, 1);
    std::vector<float> out(3 * 500);
    weighted_hamming({data.queries.data(), 3, data.codes.data(), 500, 75, data.weights.data(), true, out.data()}, 2);
    std::vector<std::uint16_t> counts(3 * 500);
    hamming(data.queries.data(), 3, data.codes.data(), 500, data.n_bytes, counts.data(), 2);
    const std::vector<float> ones(75, 1);
    for (std::size_t q = 0; q < 3; ++q)
        for (std::size_t i = 0; i < 500; ++i) {
            const auto *a = &data.codes[i * data.n_bytes], *b = &data.queries[q * data.n_bytes];
            const float distance = plain_distance(a, b, &data.weights[q * 75], 75);
            check(out[q * 500 + i] == distance, "the same distance", "distances");
            check(counts[q * 500 + i] == plain_distance(a, b, ones.data(), 75), "the same count", "distances");
        }
    for (std::size_t n : {0, 1, 63, 64, 65, 1000}) {
        std::vector<std::uint8_t> bytes(n, 7);
        const std::uint64_t before = checksum(bytes.data(), n);
        if (n) bytes[n - 1] ^= 1;
        check(n == 0 || checksum(bytes.data(), n) != before, "checksum notices", "checksum");
    }
}

// Every group of a sorted row, counted item by item.
template <typename Key>
void test_ties(std::size_t n_cases) {
    for (std::size_t turn = 0; turn < n_cases; ++turn) {
        const std::size_t n_rows = below(4), n = 1 + below(40), n_values = 1 + below(30);
        std::vector<Key> keys(n_rows * n);
        for (auto &key : keys) key = static_cast<Key>(below(n_values) << 1 | (below(3) == 0));
        for (std::size_t row = 0; row < n_rows; ++row) std::sort(&keys[row * n], &keys[row * n] + n);
        const auto is_relevant = [](Key key) { return (key & 1) != 0; };
        const auto relevant = static_cast<std::size_t>(std::count_if(keys.begin(), keys.end(), is_relevant));
        std::vector<std::int64_t> out(5 * relevant), bounds(n_rows + 1), totals(n_rows);
        std::int64_t *o = out.data();
        const Groups groups{o, o + relevant, o + 2 * relevant, o + 3 * relevant, o + 4 * relevant};
        const std::size_t found = tied_groups(keys.data(), n_rows, n, groups, bounds.data(), totals.data());
        std::size_t at = 0;
        for (std::size_t row = 0; row < n_rows; ++row) {
            check(bounds[row] == static_cast<std::int64_t>(at), "where a row begins", "ties");
            std::int64_t before = 0, hits = 0;
            for (std::size_t value = 0; value < n_values; ++value) {
                std::int64_t size = 0, count = 0;
                for (std::size_t i = 0; i < n; ++i)
                    if (keys[row * n + i] >> 1 == value) ++size, count += keys[row * n + i] & 1;
                if (count) {
                    check(at < found && groups.row[at] == static_cast<std::int64_t>(row), "a group's row", "ties");
                    check(groups.start[at] == before && groups.end[at] == before + size, "a group's places", "ties");
                    check(groups.hits[at] == hits && groups.count[at] == count, "a group's relevant items", "ties");
                    ++at;
                }
                before += size, hits += count;
            }
            check(totals[row] == hits, "relevant items of a row", "ties");
        }
        check(at == found && bounds[n_rows] == static_cast<std::int64_t>(at), "the number of groups", "ties");
    }
}

}  // namespace

int main(int argc, char **argv) {
    const std::size_t n_cases = argc > 1 ? static_cast<std::size_t>(std::atoi(argv[1])) : 60;
    test_scans(n_cases);
    test_search(n_cases);
    test_threads();
    test_distances();
    test_ties<std::uint32_t>(20 * n_cases);
    test_ties<std::uint64_t>(20 * n_cases);
    std::printf("kernel tests passed on:");
    for (const std::string &path : scanner_names()) std::printf(" %s", path.c_str());
    std::printf("\n");
}
