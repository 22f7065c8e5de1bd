// Distances, checksums and groups of ties against plain loops.
#include "checksum.hpp"
#include "paths.hpp"
#include "search/distances.hpp"
#include "search/nearness.hpp"
#include "testing.hpp"
#include "ties.hpp"

using namespace bitrank;

namespace {

// Every group of a sorted row, counted item by item.
template <typename Key>
void test_ties_of(std::size_t n_cases) {
    for (std::size_t turn = 0; turn < n_cases; ++turn) {
        const std::size_t n_rows = below(4), n = 1 + below(40), n_values = 1 + below(30);
        std::vector<Key> keys(n_rows * n);
        for (auto &key : keys) key = static_cast<Key>(below(n_values) << 1 | (below(3) == 0));
        for (std::size_t row = 0; row < n_rows; ++row) std::sort(&keys[row * n], &keys[row * n] + n);
        const auto is_relevant = [](Key key) { return (key & 1) != 0; };
        const auto n_relevant = static_cast<std::size_t>(std::count_if(keys.begin(), keys.end(), is_relevant));
        std::vector<std::int64_t> out(5 * n_relevant), bounds(n_rows + 1), totals(n_rows);
        std::int64_t *o = out.data();
        const Groups groups{o, o + n_relevant, o + 2 * n_relevant, o + 3 * n_relevant, o + 4 * n_relevant};
        const std::size_t n_groups = tied_groups(keys.data(), n_rows, n, groups, bounds.data(), totals.data());
        std::size_t g = 0;
        for (std::size_t row = 0; row < n_rows; ++row) {
            check(bounds[row] == static_cast<std::int64_t>(g), "the first group of a row", "ties");
            std::int64_t before = 0, hits = 0;
            for (std::size_t value = 0; value < n_values; ++value) {
                std::int64_t size = 0, count = 0;
                for (std::size_t i = 0; i < n; ++i)
                    if (keys[row * n + i] >> 1 == value) ++size, count += keys[row * n + i] & 1;
                if (count) {
                    check(g < n_groups && groups.row[g] == static_cast<std::int64_t>(row), "a group's row", "ties");
                    check(groups.start[g] == before && groups.end[g] == before + size, "a group's ranks", "ties");
                    check(groups.hits[g] == hits && groups.count[g] == count, "a group's relevant items", "ties");
                    ++g;
                }
                before += size, hits += count;
            }
            check(totals[row] == hits, "the relevant items of a row", "ties");
        }
        check(g == n_groups && bounds[n_rows] == static_cast<std::int64_t>(g), "the number of groups", "ties");
    }
}

// Sums of the smallest distances, from all of them sorted.
void test_nearest(const std::vector<std::uint8_t> &codes, const std::vector<std::uint8_t> &queries, std::size_t width,
                  const std::string &name) {
    const std::size_t n_codes = codes.size() / width - below(70), n_queries = queries.size() / width;
    const std::vector<float> equal(8 * width, 1);
    const Sample sample(codes.data(), n_codes, width);
    for (std::size_t turn = 0; turn < 20; ++turn) {
        const std::size_t last = below(n_codes + 1), skipped = below(std::min<std::size_t>(last, 3) + 1);
        std::vector<std::uint64_t> sums(n_queries);
        sample.nearest_sums(queries.data(), n_queries, skipped, last, sums.data(), *path(name)->scanner);
        for (std::size_t q = 0; q < n_queries; ++q) {
            std::vector<float> distances;
            for (std::size_t i = 0; i < n_codes; ++i)
                distances.push_back(plain_distance(&codes[i * width], &queries[q * width], equal.data(), 8 * width));
            std::sort(distances.begin(), distances.end());
            std::uint64_t sum = 0;
            for (std::size_t i = skipped; i < last; ++i) sum += static_cast<std::uint64_t>(distances[i]);
            check(sums[q] == sum, "the same sum of the nearest", name + ", " + std::to_string(width) + " bytes");
        }
    }
}

}  // namespace

void test_distances() {
    const std::size_t n_queries = 3, n_codes = 500, n_bits = 75, n_bytes = 10, n_rows = 20;
    const auto queries = random_codes(n_queries, n_bits), codes = random_codes(n_codes, n_bits);
    std::vector<float> weights(n_queries * n_bits), out(n_queries * n_codes), chosen(n_queries * n_rows);
    for (auto &weight : weights) weight = static_cast<float>(below(1000)) / 999;
    std::vector<std::int64_t> rows(n_queries * n_rows);
    for (auto &row : rows) row = static_cast<std::int64_t>(below(n_codes));
    Distances task{queries.data(), n_queries, codes.data(), n_codes, n_bits, weights.data(), true, out.data()};
    weighted_hamming(task, 2);
    task.out = chosen.data();
    weighted_hamming_to_rows(task, rows.data(), n_rows, 2);
    for (const std::string &name : path_names()) {
        for (const std::size_t width : {1, 8, 10, 16, 32, 48, 128}) {
            const auto some = random_codes(n_codes, 8 * width), asked = random_codes(n_queries, 8 * width);
            const std::vector<float> equal(8 * width, 1);
            std::vector<std::uint16_t> numbers(n_queries * n_codes);
            hamming(asked.data(), n_queries, some.data(), n_codes, width, numbers.data(), 2, *path(name)->scanner);
            for (std::size_t q = 0; q < n_queries; ++q)
                for (std::size_t i = 0; i < n_codes; ++i)
                    check(numbers[q * n_codes + i] ==
                              plain_distance(&some[i * width], &asked[q * width], equal.data(), 8 * width),
                          "the same count", name + ", " + std::to_string(width) + " bytes");
            test_nearest(some, asked, width, name);
        }
    }
    for (std::size_t q = 0; q < n_queries; ++q) {
        for (std::size_t i = 0; i < n_codes; ++i) {
            const auto *a = &codes[i * n_bytes], *b = &queries[q * n_bytes];
            const float distance = plain_distance(a, b, &weights[q * n_bits], n_bits);
            check(out[q * n_codes + i] == distance, "the same distance", "distances");
        }
        for (std::size_t i = q * n_rows; i < (q + 1) * n_rows; ++i)
            check(chosen[i] == out[q * n_codes + static_cast<std::size_t>(rows[i])], "the same to a row", "distances");
    }
}

void test_checksum() {
    for (const std::size_t n : {1, 63, 64, 65, 1000}) {
        std::vector<std::uint8_t> bytes(n, 7);
        const std::uint64_t before = checksum(bytes.data(), n);
        check(checksum(bytes.data(), n - 1) != before, "checksum detects a missing byte", "checksum");
        bytes[n - 1] ^= 1;
        check(checksum(bytes.data(), n) != before, "checksum detects a flipped bit", "checksum");
    }
}

void test_ties(std::size_t n_cases) {
    test_ties_of<std::uint32_t>(n_cases);
    test_ties_of<std::uint64_t>(n_cases);
}
