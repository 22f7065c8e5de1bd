// Each scan on every path, with arbitrary tables and limits, against plain sums.
#include <bit>

#include "paths.hpp"
#include "search/layout.hpp"
#include "testing.hpp"

using namespace bitrank;

namespace {

// A super-block of random rows, and tables of integer weights for four queries.
struct Scene {
    std::size_t n_bytes, n_bits;
    bool wide;  // sums of 16 bits
    std::vector<std::uint8_t> blocks, bounds, free, shared;
    std::vector<std::uint32_t> factors;
    std::vector<unsigned> weights[queries_per_scan];
    std::vector<std::uint8_t> queries[queries_per_scan];
    std::uint16_t limits[queries_per_scan];
    std::size_t test_from;
    Reading reading;
    std::uint64_t live, now;

    explicit Scene(bool has_wide_sums)
        : n_bytes(1 + below(has_wide_sums ? 130 : 16)), n_bits(8 * n_bytes), wide(has_wide_sums),
          blocks(super_rows * n_bytes), bounds(n_bytes * 128), free(n_bytes), shared(n_bytes * 32), factors(32) {
        for (auto *bytes : {&blocks, &bounds, &free})
            for (auto &byte : *bytes) byte = static_cast<std::uint8_t>(random_bits());
        for (std::size_t byte = 0; byte < n_bytes; ++byte)  // some blocks of equal rows
            for (std::size_t b = 0; b < lane_count; b += 3) bounds[(byte * 2 + 1) * lane_count + b] = 255;
        for (auto &byte : shared) byte = static_cast<std::uint8_t>(below(1 + 400 / n_bytes) & 127);
        for (auto &factor : factors) factor = static_cast<std::uint32_t>(1 + below(14)) * 0x10001u;
        // No entry exceeds 255, and no sum 16 bits.
        const unsigned heaviest = wide ? 43 : 4;
        for (std::size_t q = 0; q < queries_per_scan; ++q) {
            for (std::size_t i = 0; i < n_bits; ++i) weights[q].push_back(static_cast<unsigned>(below(heaviest)));
            for (std::size_t i = 0; i < n_bytes; ++i) queries[q].push_back(static_cast<std::uint8_t>(random_bits()));
            const std::size_t most = wide ? n_bits * 10 : std::min<std::size_t>(255, n_bits * 2);
            limits[q] = static_cast<std::uint16_t>(below(most));
        }
        test_from = below(70);
        // Unaided, or with lines prefetched.
        reading = {4096 * below(3), below(2) == 0};
        live = random_bits() | random_bits();
        now = live & random_bits() & random_bits() & (below(2) ? ~std::uint64_t{0} : random_bits());
    }

    std::vector<std::uint8_t> row(std::size_t b, std::size_t lane) const {
        std::vector<std::uint8_t> out(n_bytes);
        for (std::size_t byte = 0; byte < n_bytes; ++byte) out[byte] = blocks[(b * n_bytes + byte) * lane_count + lane];
        return out;
    }
};

// The tables of a scene for the look-ups of one path.
struct PathTables {
    const Scene &scene;
    const Scanner &scanner;
    std::string where;
    Lookups lookups;
    std::vector<std::uint8_t> entries[queries_per_scan];
    Tables tables[queries_per_scan];

    PathTables(const Scene &given, const std::string &path)
        : scene(given), scanner(*bitrank::path(path)->scanner),
          where(path + ", " + std::to_string(given.n_bytes) + " bytes"), lookups{given.n_bytes, scanner.index_bits} {
        for (std::size_t q = 0; q < queries_per_scan; ++q) {
            entries[q] = entries_of(q);
            tables[q] = {.n_bytes = scene.n_bytes,
                         .rows = entries[q].data(),
                         .blocks = scene.shared.data(),
                         .query = scene.queries[q].data(),
                         .limit = scene.limits[q],
                         .block_limit = scene.limits[q],
                         .factors = scene.factors.data(),
                         .test_from = scene.test_from,
                         .exact_steps = 0};
        }
    }

    std::vector<std::uint8_t> entries_of(std::size_t q) const {
        std::vector<std::uint8_t> out(lookups.n_tables() * lookups.n_entries());
        for (std::size_t table = 0; table < lookups.n_tables(); ++table)
            for (std::size_t value = 0; value < lookups.n_entries(); ++value) {
                unsigned sum = 0;
                for (std::size_t i = 0; i < lookups.index_bits; ++i) {
                    const std::size_t bit = lookups.bit(table, i);
                    if (bit < scene.n_bits &&
                        (value >> i & 1) != static_cast<unsigned>(bit_of(scene.queries[q].data(), bit)))
                        sum += scene.weights[q][bit];
                }
                out[table * lookups.n_entries() + value] = static_cast<std::uint8_t>(sum);
            }
        return out;
    }

    // The plain sum of the bits that differ; or that of the 16-bit functions: averages of 16 look-ups, rounded up pair by
    // pair, times factors.
    unsigned sum(std::size_t q, std::size_t b, std::size_t lane) const {
        const std::vector<std::uint8_t> row = scene.row(b, lane);
        unsigned out = 0;
        if (!scene.wide) {
            for (std::size_t bit = 0; bit < scene.n_bits; ++bit)
                if (bit_of(row.data(), bit) != bit_of(scene.queries[q].data(), bit)) out += scene.weights[q][bit];
            return out;
        }
        for (std::size_t group = 0; group < lookups.n_groups(); ++group) {
            std::vector<unsigned> values(16, 0);
            for (std::size_t table = group * 16; table < std::min(lookups.n_tables(), group * 16 + 16); ++table) {
                std::size_t index = 0;
                for (std::size_t i = 0; i < lookups.index_bits; ++i) {
                    const std::size_t bit = lookups.bit(table, i);
                    if (bit < scene.n_bits) index |= static_cast<std::size_t>(bit_of(row.data(), bit)) << i;
                }
                values[table % 16] = entries[q][table * lookups.n_entries() + index];
            }
            for (std::size_t n = 8; n; n /= 2)
                for (std::size_t i = 0; i < n; ++i) values[i] = (values[2 * i] + values[2 * i + 1] + 1) / 2;
            out += values[0] * (scene.factors[group] & 0xffff);
        }
        return out;
    }

    // The survivors of each block of `now` are the rows of plain sums within the limit.
    void check_survivors(const std::vector<std::uint64_t> &survivors, std::size_t n_queries) const {
        for (std::uint64_t left = scene.now; left; left &= left - 1) {
            const auto b = static_cast<std::size_t>(std::countr_zero(left));
            for (std::size_t lane = 0; lane < lane_count; ++lane)
                for (std::size_t q = 0; q < n_queries; ++q)
                    check((survivors[q * lane_count + b] >> lane & 1) == (sum(q, b, lane) <= scene.limits[q]),
                          "rows by plain sums", where);
        }
    }
};

// Keeps the rows that a scan with sums of 16 bits finds.
struct Survivors {
    std::size_t n_queries;
    std::vector<std::uint64_t> words;

    explicit Survivors(std::size_t n) : n_queries(n), words(n * lane_count, 0) {}
    Taker taker() { return {take, this}; }
    static void take(void *self, std::size_t b, const std::uint64_t *rows, const std::uint16_t *) {
        auto &out = *static_cast<Survivors *>(self);
        for (std::size_t q = 0; q < out.n_queries; ++q) out.words[q * lane_count + b] = rows[q];
    }
};

template <typename Test>
void on_every_path(std::size_t n_cases, bool wide, Test test) {
    for (std::size_t turn = 0; turn < n_cases; ++turn) {
        const Scene scene(wide);
        for (const std::string &path : path_names()) test(scene, PathTables(scene, path));
    }
}

}  // namespace

void test_rows8(std::size_t n_cases) {
    on_every_path(n_cases, false, [](const Scene &scene, const PathTables &path) {
        std::vector<std::uint64_t> survivors(lane_count, 0);
        path.scanner.rows8(scene.blocks.data(), scene.now, scene.live, scene.reading, path.tables[0], survivors.data());
        path.check_survivors(survivors, 1);
    });
}

void test_rows8_of_four(std::size_t n_cases) {
    on_every_path(n_cases, false, [](const Scene &scene, const PathTables &path) {
        std::vector<std::uint64_t> survivors(queries_per_scan * lane_count, 0);
        path.scanner.rows8_of_four(scene.blocks.data(), scene.now, scene.live, path.tables, survivors.data());
        path.check_survivors(survivors, queries_per_scan);
    });
}

void test_rows16(std::size_t n_cases) {
    on_every_path(n_cases, true, [](const Scene &scene, const PathTables &path) {
        Survivors out(1);
        path.scanner.rows16(scene.blocks.data(), scene.now, scene.live, scene.reading, path.tables[0], out.taker());
        path.check_survivors(out.words, 1);
    });
}

void test_rows16_of_four(std::size_t n_cases) {
    on_every_path(n_cases, true, [](const Scene &scene, const PathTables &path) {
        Survivors out(queries_per_scan);
        std::vector<std::uint8_t> prepared(lane_count * lane_count * path.lookups.n_steps());
        path.scanner.prepare(scene.blocks.data(), scene.now, scene.n_bytes, prepared.data());
        path.scanner.rows16_of_four(scene.blocks.data(), prepared.data(), scene.blocks.data(), scene.now, path.tables,
                                    out.taker());
        path.check_survivors(out.words, queries_per_scan);
    });
}

void test_sums16(std::size_t n_cases) {
    on_every_path(n_cases, true, [](const Scene &scene, const PathTables &path) {
        std::vector<std::uint16_t> sums(super_rows);
        path.scanner.sums16(scene.blocks.data(), scene.now, scene.reading, path.tables[0], sums.data());
        for (std::uint64_t left = scene.now; left; left &= left - 1) {
            const auto b = static_cast<std::size_t>(std::countr_zero(left));
            std::uint64_t within = 0;
            for (std::size_t lane = 0; lane < lane_count; ++lane) {
                const unsigned expected = path.sum(0, b, lane);
                check(sums[b * lane_count + place_of_sum(lane)] == expected, "plain sums", path.where);
                within |= std::uint64_t{expected <= scene.limits[0]} << lane;
            }
            check(path.scanner.within16(&sums[b * lane_count], scene.limits[0]) == within, "sums within the limit",
                  path.where);
        }
    });
}

// Blocks by the bits that their rows share: plain sums, saturated where the path saturates.
void test_blocks(std::size_t n_cases) {
    for (const bool wide : {false, true})
        on_every_path(n_cases, wide, [](const Scene &scene, const PathTables &path) {
            std::uint64_t within = 0, uniform = 0;
            for (std::size_t b = 0; b < lane_count; ++b) {
                unsigned sum = 0;
                bool is_uniform = true;
                for (std::size_t byte = 0; byte < scene.n_bytes; ++byte) {
                    const std::uint8_t value = scene.bounds[byte * 2 * lane_count + b];
                    const std::uint8_t agree = scene.bounds[(byte * 2 + 1) * lane_count + b];
                    const unsigned difference = (value ^ scene.queries[0][byte]) & agree;
                    sum += std::min(255u, scene.shared[byte * 32 + (difference >> 4)] * 1u +
                                              scene.shared[byte * 32 + 16 + (difference & 15)]);
                    is_uniform &= (agree | scene.free[byte]) == 255;
                }
                within |= std::uint64_t{sum <= scene.limits[0]} << b;
                uniform |= std::uint64_t{is_uniform} << b;
            }
            const auto blocks = scene.wide ? path.scanner.blocks16 : path.scanner.blocks8;
            check(blocks(scene.bounds.data(), path.tables[0]) == within, "blocks by plain sums", path.where);
            check(path.scanner.uniform(scene.bounds.data(), scene.free.data(), scene.n_bytes) == uniform,
                  "blocks of equal rows", path.where);
        });
}
