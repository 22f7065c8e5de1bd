// The loops of scan.hpp over a type `Line` of 64 bytes, included by the file of each instruction set. Everything is in
// an unnamed namespace and calls nothing from the standard library: code compiled for one instruction set must not be
// picked by the linker for another.
//
// Line: load(p), same(value), table(p) -> the entries of a table, and_(a, b), or_(a, b), xor_(a, b), low(a) and high(a) ->
//       half bytes, store(p, a), look_up(table, a), look_up16(table, a), add(a, b) with saturation, average(a, b)
//       rounded up, below_top(a) -> lanes that are not 255; index_bits, and expand(lines, indices): the indices of the
//       four look-ups of a step; blocks_of_one and blocks_of_four: how many blocks fit the registers for one query, and
//       for four.
// Sums: 64 sums of 16 bits; zero(), add(line of values, factor), within(limit) -> lanes, store(p) and load(p) with those of
//       even lanes first.
#pragma once

#include "scan.hpp"

// The sanitizers check every access of a loop: unrolled loops would take them minutes to compile.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BITRANK_UNROLL(n)
#define BITRANK_INLINE inline
#else
#define BITRANK_DO_PRAGMA(text) _Pragma(#text)
#define BITRANK_UNROLL(n) BITRANK_DO_PRAGMA(GCC unroll n)
#define BITRANK_INLINE inline __attribute__((always_inline))
#endif

namespace bitrank {
namespace {

// One query scans some blocks at a time, where they fit the registers, of a collection of up to so many bytes. Others are
// read fastest from the first byte to the last.
constexpr std::size_t bytes_by_tiles = std::size_t{1} << 24;

template <typename Line>
constexpr std::size_t step_bytes_of = Line::index_bits == 4 ? 2 : 3;

// The lines of a step, which may be the last. Tables past the last byte are zero: any line will do for it.
template <bool may_be_last, typename Line>
BITRANK_INLINE void load_step(const std::uint8_t *block, std::size_t s, std::size_t n_bytes, Line *lines) {
BITRANK_UNROLL(3)
    for (std::size_t i = 0; i < step_bytes_of<Line>; ++i) {
        const std::size_t byte = s * step_bytes_of<Line> + i;
        lines[i] = Line::load(block + (may_be_last && byte >= n_bytes ? n_bytes - 1 : byte) * lane_count);
    }
}

// The tables of a step, and their look-ups.
template <typename Line>
struct StepTables {
    static constexpr std::size_t n_entries = std::size_t{1} << Line::index_bits;
    using Table = decltype(Line::table(nullptr));

    Table t0, t1, t2, t3;

    BITRANK_INLINE StepTables(const Tables &tables, std::size_t s)
        : StepTables(tables.rows + s * Lookups::per_step * n_entries) {}
    BITRANK_INLINE explicit StepTables(const std::uint8_t *first)
        : t0(Line::table(first)), t1(Line::table(first + n_entries)), t2(Line::table(first + 2 * n_entries)),
          t3(Line::table(first + 3 * n_entries)) {}

    // Call work(four values).
    template <typename Work>
    BITRANK_INLINE void look_up(const Line *indices, Work work) const {
        work(Line::look_up(t0, indices[0]), Line::look_up(t1, indices[1]), Line::look_up(t2, indices[2]),
             Line::look_up(t3, indices[3]));
    }
};

}  // namespace
}  // namespace bitrank

#include "scan_long.hpp"

namespace bitrank {
namespace {

// What is prefetched is scanned after at least so many other bytes.
constexpr std::size_t tile_bytes_ahead = 8192;

// The indices of half bytes.
template <typename Line>
inline void expand_half_bytes(const Line *lines, Line *indices) {
    indices[0] = Line::high(lines[0]);
    indices[1] = Line::low(lines[0]);
    indices[2] = Line::high(lines[1]);
    indices[3] = Line::low(lines[1]);
}

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
            // Into the second level: the first has few lines on their way at a time, and the scan needs them.
BITRANK_UNROLL(3)
            for (std::size_t i = 0; i < step_bytes; ++i)
                __builtin_prefetch(next[b] + (s * step_bytes + i) * lane_count, 0, 2);
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

// Scan the blocks of `now`, some at a time; the last ones of `live` are followed by the next super-block. Calls
// out(block, query, lanes within the limit).
template <typename Tile, std::size_t n_blocks, typename Scan, typename Out>
BITRANK_INLINE void for_tiles(Tile &tile, const std::uint8_t *blocks, std::uint64_t &now, std::uint64_t live, Scan scan,
                              Out out) {
    const std::size_t stride = tile.n_bytes * lane_count;
    std::uint64_t later = now ? live & ~std::uint64_t{0} << __builtin_ctzll(now) : 0;
    std::size_t past_end = lane_count;
    const auto take_later = [&] {
        const std::size_t number = later ? static_cast<std::size_t>(__builtin_ctzll(later)) : past_end++;
        later &= later - 1;
        return number;
    };
    for (std::size_t skipped = 0; skipped < tile_bytes_ahead || skipped < n_blocks * stride; skipped += stride) take_later();
    while (__builtin_popcountll(now) >= static_cast<int>(n_blocks)) {
        std::size_t numbers[n_blocks];
        for (std::size_t &number : numbers) {
            number = static_cast<std::size_t>(__builtin_ctzll(now));
            tile.blocks[&number - numbers] = blocks + number * stride;
            now &= now - 1;
        }
        for (auto &next : tile.next) next = blocks + take_later() * stride;
        scan(tile, [&](std::size_t b, std::size_t q, std::uint64_t lanes) { out(numbers[b], q, lanes); });
    }
}

template <typename Line, std::size_t n_queries, std::size_t fixed_bytes>
std::uint64_t rows8_of_blocks(const std::uint8_t *blocks, std::uint64_t now, std::uint64_t live, bool by_tiles,
                              const Tables *tables, std::uint64_t *survivors) {
    constexpr std::size_t n_blocks = n_queries == 1 ? Line::blocks_of_one : Line::blocks_of_four;
    std::uint64_t with_survivors = 0;
    const auto scan = [](auto &tile, auto out) { tile.scan8(out); };
    const auto out = [&](std::size_t number, std::size_t q, std::uint64_t lanes) {
        survivors[q * lane_count + number] = lanes;
        with_survivors |= std::uint64_t{lanes != 0} << number;
    };
    Tile<Line, n_blocks, n_queries, fixed_bytes> tile(tables);
    if (by_tiles) for_tiles<decltype(tile), n_blocks>(tile, blocks, now, live, scan, out);
    Tile<Line, 1, n_queries, fixed_bytes> single(tables);
    for_tiles<decltype(single), 1>(single, blocks, now, live, scan, out);
    return with_survivors;
}

template <typename Line, std::size_t n_queries>
std::uint64_t rows8_of(const std::uint8_t *blocks, std::uint64_t now, std::uint64_t live, bool by_tiles,
                       const Tables *tables, std::uint64_t *survivors) {
    switch (tables->n_bytes) {
        case 8: return rows8_of_blocks<Line, n_queries, 8>(blocks, now, live, by_tiles, tables, survivors);
        case 16: return rows8_of_blocks<Line, n_queries, 16>(blocks, now, live, by_tiles, tables, survivors);
        default: return rows8_of_blocks<Line, n_queries, 0>(blocks, now, live, by_tiles, tables, survivors);
    }
}

template <typename Line>
std::uint64_t rows8(const std::uint8_t *blocks, std::uint64_t now, std::uint64_t live, std::size_t total_bytes,
                    const Tables &tables, std::uint64_t *survivors) {
    return rows8_of<Line, 1>(blocks, now, live, total_bytes <= bytes_by_tiles, &tables, survivors);
}

template <typename Line>
std::uint64_t rows8_of_four(const std::uint8_t *blocks, std::uint64_t now, std::uint64_t live, const Tables *tables,
                            std::uint64_t *survivors) {
    return rows8_of<Line, queries_per_scan>(blocks, now, live, true, tables, survivors);
}

// Bounds of a super-block hold two lines per byte: the value of the first row of each block, and ones in the bits that
// all rows of the block share.
template <typename Line>
inline Line shared_difference(const std::uint8_t *bounds, std::size_t byte, const Tables &tables) {
    const std::uint8_t *lines = bounds + byte * 2 * lane_count;
    return Line::and_(Line::xor_(Line::load(lines), Line::same(tables.query[byte])), Line::load(lines + lane_count));
}

template <typename Line>
inline Line shared_weight(const Line &difference, const std::uint8_t *table) {
    return Line::add(Line::look_up16(table, Line::high(difference)), Line::look_up16(table + 16, Line::low(difference)));
}

template <typename Line>
std::uint64_t blocks8(const std::uint8_t *bounds, const Tables &tables) {
    Line sums = Line::same(static_cast<std::uint8_t>(254 - tables.block_limit));
    for (std::size_t byte = 0; byte < tables.n_bytes; ++byte)
        sums = Line::add(sums, shared_weight(shared_difference<Line>(bounds, byte, tables), tables.blocks + byte * 32));
    return Line::below_top(sums);
}

template <typename Line, typename Sums>
std::uint64_t blocks16(const std::uint8_t *bounds, const Tables &tables) {
    Sums sums = Sums::zero();
    for (std::size_t byte = 0; byte < tables.n_bytes; ++byte)
        sums.add(shared_weight(shared_difference<Line>(bounds, byte, tables), tables.blocks + byte * 32), 0x10001);
    return sums.within(tables.block_limit);
}

template <typename Line>
std::uint64_t uniform(const std::uint8_t *bounds, const std::uint8_t *free, std::size_t n_bytes) {
    Line agree = Line::same(255);
    for (std::size_t byte = 0; byte < n_bytes; ++byte) {
        const Line shared = Line::load(bounds + (byte * 2 + 1) * lane_count);
        agree = Line::and_(agree, Line::or_(shared, Line::same(free[byte])));
        if (byte % 8 == 7 && Line::below_top(agree) == ~std::uint64_t{0}) return 0;
    }
    return ~Line::below_top(agree);
}

void round_down(const float *weights, std::size_t n, float scale, std::uint8_t *out) {
    for (std::size_t i = 0; i < n; ++i) {
        const float scaled = weights[i] * scale;
        out[i] = static_cast<std::uint8_t>(static_cast<int>(scaled < 255.0f ? scaled : 255.0f));
    }
}

// Floats: 16 sums; zero(), add_where(differences, mask, weight) and add(sums), store(p); the type Difference, and
//         differences(lanes, query, out) of 16 bytes.
template <typename Floats>
void differences(const std::uint8_t *lanes, const std::uint8_t *query, std::size_t n_bytes, std::uint32_t *out) {
    auto *to = reinterpret_cast<typename Floats::Difference *>(out);
    for (std::size_t byte = 0; byte < n_bytes; ++byte)
        Floats::differences(lanes + byte * lane_count, query[byte], to + byte * rows_together);
}

template <typename Floats>
void set_row(const std::uint8_t *row, std::size_t stride, const std::uint8_t *query, std::size_t n_bytes, std::size_t i,
             std::uint32_t *out) {
    using Difference = typename Floats::Difference;
    auto *to = reinterpret_cast<Difference *>(out) + i;
BITRANK_UNROLL(8)
    for (std::size_t byte = 0; byte < n_bytes; ++byte)
        to[byte * rows_together] = static_cast<Difference>(row[byte * stride] ^ query[byte]);
}

template <typename Floats>
void distances(const std::uint32_t *given, const BitPlace *places, const float *weights, std::size_t n_bits,
               float *out) {
    const auto *differences = reinterpret_cast<const typename Floats::Difference *>(given);
    Floats total = Floats::zero();
    std::size_t bit = 0;
    for (; bit + 8 <= n_bits; bit += 8) {
        Floats sum = Floats::zero();
BITRANK_UNROLL(8)
        for (std::size_t i = bit; i < bit + 8; ++i)
            sum.add_where(differences + places[i].start, places[i].mask, weights[i]);
        total.add(sum);
    }
    Floats sum = Floats::zero();
    for (; bit < n_bits; ++bit) sum.add_where(differences + places[bit].start, places[bit].mask, weights[bit]);
    total.add(sum);
    total.store(out);
}

template <typename Line, typename Sums, typename Floats>
constexpr Scanner scanner_of() {
    return {Line::index_bits,
            rows8<Line>,
            rows8_of_four<Line>,
            rows16<Line, Sums>,
            sums16<Line, Sums>,
            within16<Sums>,
            prepare<Line>,
            rows16_of_four<Line, Sums>,
            blocks8<Line>,
            blocks16<Line, Sums>,
            uniform<Line>,
            round_down,
            differences<Floats>,
            set_row<Floats>,
            distances<Floats>};
}

}  // namespace
}  // namespace bitrank
