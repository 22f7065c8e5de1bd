// Bounds with sums of 16 bits, of long codes and of few codes: one block at a time, included by scan_loops.hpp.
#pragma once

#include "scan_steps.hpp"

namespace bitrank {
namespace {

// Tables of so many groups of steps, for four queries, stay in the first level of the cache while a few blocks are scanned.
constexpr std::size_t groups_at_once = 6, blocks_at_once = 8;

// Where an index takes bits of three bytes, its line is computed once for all queries.
template <typename Line>
void prepare(const std::uint8_t *blocks, std::uint64_t now, std::size_t n_bytes, std::uint8_t *prepared) {
    if constexpr (Line::index_bits == 6) {
        const std::size_t n_steps = (n_bytes + 2) / 3;
        for (; now; now &= now - 1) {
            const auto number = static_cast<std::size_t>(__builtin_ctzll(now));
            const std::uint8_t *block = blocks + number * n_bytes * lane_count;
            std::uint8_t *out = prepared + number * n_steps * lane_count;
            for (std::size_t s = 0; s < n_steps; ++s) {
                Line lines[3], indices[4];
                load_step<true>(block, s, n_bytes, lines);
                Line::expand(lines, indices);
                Line::store(out + s * lane_count, indices[3]);
            }
        }
    }
}

// A block scanned for four queries or for one, group by group: sums are by query.
template <typename Line, typename Sums, std::size_t n_queries>
struct BlockScan {
    static constexpr std::size_t step_bytes = step_bytes_of<Line>;

    const Tables *tables;
    std::size_t n_bytes;
    const std::uint8_t *prepared = nullptr;  // for four queries
    // What is prefetched: for four queries a line per step. For one query, every line so many bytes ahead of those of a
    // step: before the turn as seen from the block, then as seen from `ahead`.
    const std::uint8_t *ahead = nullptr;
    std::size_t turn = 0, bytes_ahead = 0;
    const std::uint8_t *block = nullptr;

    explicit BlockScan(const Tables *all) : tables(all), n_bytes(all->n_bytes) {}

    std::size_t stride() const { return n_bytes * lane_count; }
    std::size_t n_steps() const { return (n_bytes + step_bytes - 1) / step_bytes; }
    std::size_t n_groups() const { return (n_steps() + steps_per_group - 1) / steps_per_group; }

    // Look up a step: work(query, four values).
    template <bool is_last, typename Work>
    BITRANK_INLINE void look_up(std::size_t s, Work work) const {
        Line indices[Lookups::per_step], lines[step_bytes];
        load_step<is_last>(block, s, n_bytes, lines);
        if constexpr (Line::index_bits == 6 && n_queries > 1) {
            for (std::size_t i = 0; i < 3; ++i) indices[i] = lines[i];
            indices[3] = Line::load(prepared + s * lane_count);
        } else {
            Line::expand(lines, indices);
        }
        if constexpr (n_queries > 1) {
            __builtin_prefetch(ahead + s * lane_count, 0, 2);
        } else {
            const std::uint8_t *from = (s < turn ? block : ahead) + s * step_bytes * lane_count;
            for (std::size_t i = 0; i < step_bytes; ++i) __builtin_prefetch(from + bytes_ahead + i * lane_count);
        }
BITRANK_UNROLL(4)
        for (std::size_t q = 0; q < n_queries; ++q) {
            const StepTables<Line> at_step(tables[q], s);
            at_step.look_up(indices, [&](const Line &x, const Line &y, const Line &z, const Line &w) { work(q, x, y, z, w); });
        }
    }

    // Average the look-ups of a step: work(query, average).
    template <bool is_last, typename Work>
    BITRANK_INLINE void average(std::size_t s, Work work) const {
        look_up<is_last>(s, [&](std::size_t q, const Line &x, const Line &y, const Line &z, const Line &w) {
            work(q, Line::average(Line::average(x, y), Line::average(z, w)));
        });
    }

    // Add the look-ups of a group of steps, of which the code has the first few, where their sums are exact.
    template <std::size_t n_steps, bool is_last>
    BITRANK_INLINE void add_exact_group(std::size_t group, Sums *sums) const {
        const bool by_step = tables->exact_steps == 1;
        Line total[n_queries];
        for (std::size_t s = group * steps_per_group; s < group * steps_per_group + n_steps; ++s)
            look_up<is_last>(s, [&](std::size_t q, const Line &x, const Line &y, const Line &z, const Line &w) {
                const Line sum = Line::add(Line::add(x, y), Line::add(z, w));
                if (by_step) sums[q].add(sum, tables[q].factors[s]);
                else total[q] = s % steps_per_group ? Line::add(total[q], sum) : sum;
            });
        for (std::size_t q = 0; q < n_queries && !by_step; ++q) sums[q].add(total[q], tables[q].factors[group]);
    }

    // Add the average of a group of steps, of which the code has the first few.
    template <std::size_t n_steps, bool is_last>
    BITRANK_INLINE void add_group(std::size_t group, Sums *sums) const {
        if (tables->exact_steps) return add_exact_group<n_steps, is_last>(group, sums);
        const std::size_t s = group * steps_per_group;
        const Line none = Line::same(0);
        Line first[n_queries], second[n_queries];
        average<is_last>(s, [&](std::size_t i, const Line &line) { first[i] = line; });
        for (std::size_t i = 0; i < n_queries; ++i) second[i] = none;
        if constexpr (n_steps > 1) average<is_last>(s + 1, [&](std::size_t i, const Line &line) { second[i] = line; });
        for (std::size_t i = 0; i < n_queries; ++i) first[i] = Line::average(first[i], second[i]);
        for (std::size_t i = 0; i < n_queries; ++i) second[i] = none;
        if constexpr (n_steps == 3)
            average<is_last>(s + 2, [&](std::size_t i, const Line &line) { second[i] = Line::average(line, none); });
        if constexpr (n_steps == 4) {
            average<is_last>(s + 2, [&](std::size_t i, const Line &line) { second[i] = line; });
            average<is_last>(s + 3, [&](std::size_t i, const Line &line) { second[i] = Line::average(second[i], line); });
        }
        for (std::size_t i = 0; i < n_queries; ++i)
            sums[i].add(Line::average(first[i], second[i]), tables[i].factors[group]);
    }

    BITRANK_INLINE void add_groups(std::size_t group, std::size_t stop, Sums *sums) const {
        for (; group < stop && (group + 1) * steps_per_group * step_bytes <= n_bytes; ++group)
            add_group<steps_per_group, false>(group, sums);
        if (group == stop) return;
        switch (n_steps() - group * steps_per_group) {
            case 1: return add_group<1, true>(group, sums);
            case 2: return add_group<2, true>(group, sums);
            case 3: return add_group<3, true>(group, sums);
            default: return add_group<4, true>(group, sums);
        }
    }
};

template <typename Line, typename Sums>
void rows16_of_four(const std::uint8_t *blocks, const std::uint8_t *prepared, const std::uint8_t *ahead,
                    std::uint64_t now, const Tables *tables, Taker taker) {
    constexpr std::size_t n_queries = queries_per_scan;
    BlockScan<Line, Sums, n_queries> quad(tables);
    const std::size_t stride = quad.stride(), n_steps = quad.n_steps(), n_groups = quad.n_groups();
    const auto place = [&](std::size_t number, std::size_t i) {
        quad.block = blocks + number * stride;
        quad.prepared = prepared + number * n_steps * lane_count;
        quad.ahead = ahead + i * stride;
    };
    const auto take = [&](std::size_t number, const Sums *sums) {
        std::uint64_t rows[n_queries], any = 0;
        for (std::size_t q = 0; q < n_queries; ++q) any |= rows[q] = sums[q].within(tables[q].limit);
        if (!any) return;
        std::uint16_t values[n_queries * lane_count];
        for (std::size_t q = 0; q < n_queries && tables->exact_steps; ++q) sums[q].store(values + q * lane_count);
        taker.take(taker.self, number, rows, values);
    };
    if (n_groups <= groups_at_once) {
        for (std::size_t i = 0; now; now &= now - 1, ++i) {
            const auto number = static_cast<std::size_t>(__builtin_ctzll(now));
            Sums sums[n_queries] = {Sums::zero(), Sums::zero(), Sums::zero(), Sums::zero()};
            place(number, i);
            quad.add_groups(0, n_groups, sums);
            take(number, sums);
        }
        return;
    }
    while (now) {
        Sums saved[blocks_at_once][n_queries];
        std::size_t numbers[blocks_at_once], n = 0;
        for (; n < blocks_at_once && now; now &= now - 1) numbers[n++] = static_cast<std::size_t>(__builtin_ctzll(now));
        for (std::size_t group = 0; group < n_groups; group += groups_at_once) {
            const std::size_t stop = group + groups_at_once < n_groups ? group + groups_at_once : n_groups;
            for (std::size_t i = 0; i < n; ++i) {
                Sums sums[n_queries];
                for (std::size_t q = 0; q < n_queries; ++q) sums[q] = group ? saved[i][q] : Sums::zero();
                place(numbers[i], i);
                quad.add_groups(group, stop, sums);
                if (stop == n_groups) take(numbers[i], sums);
                else
                    for (std::size_t q = 0; q < n_queries; ++q) saved[i][q] = sums[q];
            }
        }
        ahead += n * stride;
    }
}

// A block whose rows are all beyond the limit after half of the code is left. Later that costs more than it saves: memory is
// read fastest without gaps. Returns the number of groups before the test.
inline std::size_t groups_before_test(const Tables &tables, std::size_t n_groups) {
    const std::size_t first_test = (tables.test_from + steps_per_group - 1) / steps_per_group;
    return 2 * first_test <= n_groups ? first_test : n_groups;
}

// Scan the blocks of `now`; the last of `live` is followed by the next super-block. Calls out(block, sums), unless all rows
// are found to be beyond the limit by then.
template <typename Line, typename Sums, typename Out>
BITRANK_INLINE void scan_one_query(const std::uint8_t *blocks, std::uint64_t now, std::uint64_t live,
                                   std::size_t bytes_ahead, const Tables &tables, bool may_stop, Out out) {
    BlockScan<Line, Sums, 1> scan(&tables);
    const std::size_t stride = scan.stride(), n_groups = scan.n_groups();
    const std::size_t n_first = may_stop ? groups_before_test(tables, n_groups) : n_groups;
    scan.bytes_ahead = bytes_ahead;
    scan.turn = stride > bytes_ahead ? (stride - bytes_ahead) / (scan.step_bytes * lane_count) : 0;
    for (; now; now &= now - 1) {
        const auto number = static_cast<std::size_t>(__builtin_ctzll(now));
        const std::uint64_t later = live & ~std::uint64_t{1} << number;
        const std::size_t next = later ? static_cast<std::size_t>(__builtin_ctzll(later)) : lane_count;
        Sums sums = Sums::zero();
        scan.block = blocks + number * stride;
        scan.ahead = blocks + next * stride - stride;
        scan.add_groups(0, n_first, &sums);
        if (n_first < n_groups) {
            if (!sums.within(tables.limit)) continue;
            scan.add_groups(n_first, n_groups, &sums);
        }
        out(number, sums);
    }
}

template <typename Line, typename Sums>
void rows16(const std::uint8_t *blocks, std::uint64_t now, std::uint64_t live, Reading reading, const Tables &tables,
            Taker taker) {
    scan_one_query<Line, Sums>(blocks, now, live, reading.bytes_ahead, tables, true, [&](std::size_t number, const Sums &sums) {
        const std::uint64_t rows = sums.within(tables.limit);
        if (!rows) return;
        std::uint16_t values[lane_count];
        if (tables.exact_steps) sums.store(values);
        taker.take(taker.self, number, &rows, values);
    });
}

template <typename Line, typename Sums>
void sums16(const std::uint8_t *blocks, std::uint64_t now, Reading reading, const Tables &tables, std::uint16_t *sums) {
    scan_one_query<Line, Sums>(blocks, now, now, reading.bytes_ahead, tables, false, [&](std::size_t number, const Sums &of_block) {
        of_block.store(sums + number * lane_count);
    });
}

template <typename Sums>
std::uint64_t within16(const std::uint16_t *sums, std::uint16_t limit) {
    return Sums::load(sums).within(limit);
}

}  // namespace
}  // namespace bitrank
