// Bounds with sums of 8 bits, of short codes: a few blocks at a time, included by scan_loops.hpp.
#pragma once

#include "scan_steps.hpp"

namespace bitrank {
namespace {

// A few blocks scanned together for some queries: `n_blocks` and `n_queries` are constants, so that all sums stay in
// registers and every table is loaded once.
template <typename Line, std::size_t n_blocks, std::size_t n_queries, std::size_t fixed_bytes>
struct Tile {
    static constexpr std::size_t step_bytes = step_bytes_of<Line>;

    const std::uint8_t *blocks[n_blocks], *next[n_blocks];  // next: what a later tile will scan
    const Tables *tables;
    std::size_t n_bytes;

    Tile(const Tables *all) : tables(all), n_bytes(fixed_bytes ? fixed_bytes : all->n_bytes) {}

    std::size_t n_steps() const { return (n_bytes + step_bytes - 1) / step_bytes; }

    // Look up the bits of a step: work(block, query, four values).
    template <typename Work>
    BITRANK_INLINE void step(std::size_t s, Work work) const {
        Line indices[n_blocks][Lookups::per_step];
BITRANK_UNROLL(4)
        for (std::size_t b = 0; b < n_blocks; ++b) {
            Line lines[step_bytes];
            load_step<true>(blocks[b], s, n_bytes, lines);
BITRANK_UNROLL(3)
            for (std::size_t i = 0; i < step_bytes; ++i)
                __builtin_prefetch(next[b] + (s * step_bytes + i) * lane_count);
            Line::expand(lines, indices[b]);
        }
BITRANK_UNROLL(4)
        for (std::size_t q = 0; q < n_queries; ++q) {
            const StepTables<Line> at_step(tables[q], s);
BITRANK_UNROLL(4)
            for (std::size_t b = 0; b < n_blocks; ++b)
                at_step.look_up(indices[b], [&](const Line &x, const Line &y, const Line &z, const Line &w) {
                    work(b, q, x, y, z, w);
                });
        }
    }

    // Call out(block, query, lanes within the limit).
    template <typename Out>
    BITRANK_INLINE void scan8(Out out) const {
        Line sums[n_queries][n_blocks];
        for (std::size_t q = 0; q < n_queries; ++q)
            for (std::size_t b = 0; b < n_blocks; ++b)
                sums[q][b] = Line::same(static_cast<std::uint8_t>(254 - tables[q].limit));
        const std::size_t n = n_steps();
BITRANK_UNROLL(8)
        for (std::size_t s = 0; s < n; ++s)
            step(s, [&](std::size_t b, std::size_t q, const Line &x, const Line &y, const Line &z, const Line &w) {
                sums[q][b] = Line::add(Line::add(sums[q][b], Line::add(x, y)), Line::add(z, w));
            });
        for (std::size_t q = 0; q < n_queries; ++q)
            for (std::size_t b = 0; b < n_blocks; ++b) out(b, q, Line::below_top(sums[q][b]));
    }
};

// Scan the blocks of `now`, some at a time, and prefetch those so many bytes ahead; the last ones of `live` are followed by
// the next super-block. Calls out(block, query, lanes within the limit).
template <typename Tile, std::size_t n_blocks, typename Scan, typename Out>
BITRANK_INLINE void for_tiles(Tile &tile, const std::uint8_t *blocks, std::uint64_t &now, std::uint64_t live,
                              std::size_t bytes_ahead, Scan scan, Out out) {
    const std::size_t stride = tile.n_bytes * lane_count;
    std::uint64_t later = now ? live & ~std::uint64_t{0} << __builtin_ctzll(now) : 0;
    std::size_t past_end = lane_count;
    const auto take_later = [&] {
        const std::size_t number = later ? static_cast<std::size_t>(__builtin_ctzll(later)) : past_end++;
        later &= later - 1;
        return number;
    };
    for (std::size_t skipped = 0; skipped < bytes_ahead || skipped < n_blocks * stride; skipped += stride) take_later();
    while (__builtin_popcountll(now) >= static_cast<int>(n_blocks)) {
        std::size_t numbers[n_blocks];
        for (std::size_t &number : numbers) {
            number = static_cast<std::size_t>(__builtin_ctzll(now));
            tile.blocks[&number - numbers] = blocks + number * stride;
            now &= now - 1;
        }
        for (std::size_t b = 0; b < n_blocks; ++b)
            tile.next[b] = bytes_ahead ? blocks + take_later() * stride : tile.blocks[b];
        scan(tile, [&](std::size_t b, std::size_t q, std::uint64_t lanes) { out(numbers[b], q, lanes); });
    }
}

template <typename Line, std::size_t n_queries, std::size_t fixed_bytes>
std::uint64_t rows8_of_blocks(const std::uint8_t *blocks, std::uint64_t now, std::uint64_t live, Reading reading,
                              const Tables *tables, std::uint64_t *survivors) {
    constexpr std::size_t n_blocks = n_queries == 1 ? Line::blocks_of_one : Line::blocks_of_four;
    std::uint64_t with_survivors = 0;
    const auto scan = [](auto &tile, auto out) { tile.scan8(out); };
    const auto out = [&](std::size_t number, std::size_t q, std::uint64_t lanes) {
        survivors[q * lane_count + number] = lanes;
        with_survivors |= std::uint64_t{lanes != 0} << number;
    };
    Tile<Line, n_blocks, n_queries, fixed_bytes> tile(tables);
    const std::size_t ahead = reading.bytes_ahead;
    if (reading.by_tiles) for_tiles<decltype(tile), n_blocks>(tile, blocks, now, live, ahead, scan, out);
    Tile<Line, 1, n_queries, fixed_bytes> single(tables);
    for_tiles<decltype(single), 1>(single, blocks, now, live, ahead, scan, out);
    return with_survivors;
}

template <typename Line, std::size_t n_queries>
std::uint64_t rows8_of(const std::uint8_t *blocks, std::uint64_t now, std::uint64_t live, Reading reading,
                       const Tables *tables, std::uint64_t *survivors) {
    switch (tables->n_bytes) {
        case 8: return rows8_of_blocks<Line, n_queries, 8>(blocks, now, live, reading, tables, survivors);
        case 16: return rows8_of_blocks<Line, n_queries, 16>(blocks, now, live, reading, tables, survivors);
        default: return rows8_of_blocks<Line, n_queries, 0>(blocks, now, live, reading, tables, survivors);
    }
}

template <typename Line>
std::uint64_t rows8(const std::uint8_t *blocks, std::uint64_t now, std::uint64_t live, Reading reading,
                    const Tables &tables, std::uint64_t *survivors) {
    return rows8_of<Line, 1>(blocks, now, live, reading, &tables, survivors);
}

template <typename Line>
std::uint64_t rows8_of_four(const std::uint8_t *blocks, std::uint64_t now, std::uint64_t live, const Tables *tables,
                            std::uint64_t *survivors) {
    return rows8_of<Line, queries_per_scan>(blocks, now, live, {bytes_ahead, true}, tables, survivors);
}

}  // namespace
}  // namespace bitrank
