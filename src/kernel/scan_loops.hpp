// The loops of scan.hpp over a type `Line` of 64 bytes, included by the file of each instruction set. Everything is in
// an unnamed namespace and calls nothing from the standard library: code compiled for one instruction set must not be
// picked by the linker for another.
//
// Line: load(p), same(value), table(p) -> 16 entries, and_(a, b), or_(a, b), xor_(a, b), low(a) and high(a) -> half
//       bytes, look_up(table, a), add(a, b) with saturation, below_top(a) -> lanes that are not 255.
// Sums: 64 sums of 16 bits; zero(), add(line of values up to 254), within(limit) -> lanes.
#pragma once

#include "scan.hpp"

namespace bitrank {
namespace {

// Long codes stop as soon as every lane is beyond the limit; the test costs about as much as one byte.
constexpr std::size_t bytes_between_tests = 8;
constexpr std::size_t lines_ahead = 32;

// Prefetch the blocks to be scanned a fixed number of cache lines ahead: the hardware prefetcher does not follow a scan
// that skips blocks.
struct Prefetcher {
    const std::uint8_t *blocks;
    std::size_t stride;
    std::uint64_t left;
    std::size_t past_end = lane_count;

    Prefetcher(const std::uint8_t *super, std::uint64_t now, std::uint64_t live, std::size_t n_bytes)
        : blocks(super), stride(n_bytes * lane_count), left(live & ~((now & -now) - 1)) {
        for (std::size_t n = n_bytes < lines_ahead ? lines_ahead / n_bytes : 1; n; --n) left &= left - 1;
    }
    // After the last live block, continue with the next super-block.
    const std::uint8_t *next() {
        if (!left) return blocks + past_end++ * stride;
        const int b = __builtin_ctzll(left);
        left &= left - 1;
        return blocks + b * stride;
    }
};

template <typename Line, std::size_t fixed_bytes>
void rows8_of_blocks(const std::uint8_t *blocks, std::uint64_t now, std::uint64_t live, const Tables &tables,
                     std::uint64_t *survivors) {
    const std::size_t n_bytes = fixed_bytes ? fixed_bytes : tables.n_bytes;
    const Line start = Line::same(static_cast<std::uint8_t>(254 - tables.limit));
    Prefetcher prefetcher(blocks, now, live, n_bytes);
    for (; now; now &= now - 1) {
        const int b = __builtin_ctzll(now);
        const std::uint8_t *block = blocks + b * n_bytes * lane_count;
        const std::uint8_t *next = prefetcher.next();
        Line sums = start;
#pragma GCC unroll 8
        for (std::size_t byte = 0; byte < n_bytes; ++byte) {
            if (byte && byte % bytes_between_tests == 0 && !Line::below_top(sums)) break;
            __builtin_prefetch(next + byte * lane_count);
            const Line line = Line::load(block + byte * lane_count);
            const std::uint8_t *table = tables.rows + byte * 32;
            sums = Line::add(sums, Line::look_up(Line::table(table), Line::high(line)));
            sums = Line::add(sums, Line::look_up(Line::table(table + 16), Line::low(line)));
        }
        survivors[b] = Line::below_top(sums);
    }
}

template <typename Line>
void rows8(const std::uint8_t *blocks, std::uint64_t now, std::uint64_t live, const Tables &tables,
           std::uint64_t *survivors) {
    switch (tables.n_bytes) {
        case 4: return rows8_of_blocks<Line, 4>(blocks, now, live, tables, survivors);
        case 8: return rows8_of_blocks<Line, 8>(blocks, now, live, tables, survivors);
        case 16: return rows8_of_blocks<Line, 16>(blocks, now, live, tables, survivors);
        default: return rows8_of_blocks<Line, 0>(blocks, now, live, tables, survivors);
    }
}

template <typename Line, typename Sums>
void rows16(const std::uint8_t *blocks, std::uint64_t now, std::uint64_t live, const Tables &tables,
            std::uint64_t *survivors) {
    Prefetcher prefetcher(blocks, now, live, tables.n_bytes);
    for (; now; now &= now - 1) {
        const int b = __builtin_ctzll(now);
        const std::uint8_t *block = blocks + b * tables.n_bytes * lane_count;
        const std::uint8_t *next = prefetcher.next();
        Sums sums = Sums::zero();
        std::uint64_t within = ~std::uint64_t{0};
        for (std::size_t start = 0; start < tables.n_bytes && within; start += bytes_between_tests) {
            const std::size_t stop =
                start + bytes_between_tests < tables.n_bytes ? start + bytes_between_tests : tables.n_bytes;
            for (std::size_t byte = start; byte < stop; ++byte) {
                __builtin_prefetch(byte + lines_ahead < tables.n_bytes
                                       ? block + (byte + lines_ahead) * lane_count
                                       : next + (byte + lines_ahead - tables.n_bytes) * lane_count);
                const Line line = Line::load(block + byte * lane_count);
                const std::uint8_t *table = tables.rows + byte * 32;
                sums.add(Line::add(Line::look_up(Line::table(table), Line::high(line)),
                                   Line::look_up(Line::table(table + 16), Line::low(line))));
            }
            within = sums.within(tables.limit);
        }
        survivors[b] = within;
    }
}

// Bounds of a super-block hold two lines per byte: the value of the first row of each block, and ones in the bits that
// all rows of the block share.
template <typename Line>
inline Line shared_difference(const std::uint8_t *bounds, std::size_t byte, const Tables &tables) {
    const std::uint8_t *lines = bounds + byte * 2 * lane_count;
    return Line::and_(Line::xor_(Line::load(lines), Line::same(tables.query[byte])), Line::load(lines + lane_count));
}

template <typename Line>
std::uint64_t blocks8(const std::uint8_t *bounds, const Tables &tables) {
    Line sums = Line::same(static_cast<std::uint8_t>(254 - tables.limit));
    for (std::size_t byte = 0; byte < tables.n_bytes; ++byte) {
        const Line line = shared_difference<Line>(bounds, byte, tables);
        const std::uint8_t *table = tables.blocks + byte * 32;
        sums = Line::add(sums, Line::look_up(Line::table(table), Line::high(line)));
        sums = Line::add(sums, Line::look_up(Line::table(table + 16), Line::low(line)));
    }
    return Line::below_top(sums);
}

template <typename Line, typename Sums>
std::uint64_t blocks16(const std::uint8_t *bounds, const Tables &tables) {
    Sums sums = Sums::zero();
    for (std::size_t byte = 0; byte < tables.n_bytes; ++byte) {
        const Line line = shared_difference<Line>(bounds, byte, tables);
        const std::uint8_t *table = tables.blocks + byte * 32;
        sums.add(Line::add(Line::look_up(Line::table(table), Line::high(line)),
                           Line::look_up(Line::table(table + 16), Line::low(line))));
    }
    return sums.within(tables.limit);
}

template <typename Line>
std::uint64_t uniform(const std::uint8_t *bounds, const std::uint8_t *free, std::size_t n_bytes) {
    Line agree = Line::same(255);
    for (std::size_t byte = 0; byte < n_bytes; ++byte) {
        const Line shared = Line::load(bounds + (byte * 2 + 1) * lane_count);
        agree = Line::and_(agree, Line::or_(shared, Line::same(free[byte])));
    }
    return ~Line::below_top(agree);
}

}  // namespace
}  // namespace bitrank
