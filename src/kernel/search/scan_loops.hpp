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

#include "scan16.hpp"
#include "scan8.hpp"

namespace bitrank {
namespace {

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

// Words counted at once where their number is a constant.
template <std::size_t fixed_bytes>
void hamming_of(const std::uint8_t *query, const std::uint8_t *codes, std::size_t n_codes, std::size_t n_bytes,
                std::uint16_t *out) {
    if (fixed_bytes) n_bytes = fixed_bytes;
    for (std::size_t i = 0; i < n_codes; ++i, codes += n_bytes) {
        int count = 0;
        std::size_t byte = 0;
BITRANK_UNROLL(16)
        for (; byte + 8 <= n_bytes; byte += 8) {
            std::uint64_t a, b;
            __builtin_memcpy(&a, query + byte, 8);
            __builtin_memcpy(&b, codes + byte, 8);
            count += __builtin_popcountll(a ^ b);
        }
        for (; byte < n_bytes; ++byte) count += __builtin_popcount(static_cast<unsigned>(query[byte] ^ codes[byte]));
        out[i] = static_cast<std::uint16_t>(count);
    }
}

inline void hamming(const std::uint8_t *query, const std::uint8_t *codes, std::size_t n_codes, std::size_t n_bytes,
                    std::uint16_t *out) {
    switch (n_bytes) {
        case 8: return hamming_of<8>(query, codes, n_codes, n_bytes, out);
        case 16: return hamming_of<16>(query, codes, n_codes, n_bytes, out);
        case 32: return hamming_of<32>(query, codes, n_codes, n_bytes, out);
        case 48: return hamming_of<48>(query, codes, n_codes, n_bytes, out);
        case 128: return hamming_of<128>(query, codes, n_codes, n_bytes, out);
        default: return hamming_of<0>(query, codes, n_codes, n_bytes, out);
    }
}

inline void count(const std::uint64_t *query, const std::uint64_t *groups, std::size_t n_groups, std::size_t n_words,
                  std::uint16_t *out) {
    for (std::size_t group = 0; group < n_groups; ++group, out += codes_per_group) {
        std::uint64_t sums[codes_per_group] = {};
        for (std::size_t word = 0; word < n_words; ++word, groups += codes_per_group)
BITRANK_UNROLL(8)
            for (std::size_t i = 0; i < codes_per_group; ++i)
                sums[i] += static_cast<std::uint64_t>(__builtin_popcountll(query[word] ^ groups[i]));
        for (std::size_t i = 0; i < codes_per_group; ++i) out[i] = static_cast<std::uint16_t>(sums[i]);
    }
}

inline std::size_t count_within(const std::uint16_t *numbers, std::size_t n, std::uint16_t limit) {
    std::size_t total = 0;
    while (n) {
        const std::size_t some = n < 32768 ? n : 32768;
        std::uint16_t count = 0;
        for (std::size_t i = 0; i < some; ++i) count = static_cast<std::uint16_t>(count + (numbers[i] <= limit));
        total += count;
        numbers += some;
        n -= some;
    }
    return total;
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

inline void half_byte_tables(const std::uint8_t *code, const float *weights, std::size_t n_bytes, float *out) {
    // Whether bit i of a value is one, and whether it is zero.
    static constexpr float differs[4][2][16] = {
        {{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0}},
        {{0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1}, {1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0}},
        {{0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1}, {1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0}},
        {{0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1}, {1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0}}};
    for (std::size_t half = 0; half < 2 * n_bytes; ++half, weights += 4, out += 16) {
        const unsigned value = half % 2 ? code[half / 2] & 15 : code[half / 2] >> 4;
        const float *a = differs[0][value >> 3], *b = differs[1][value >> 2 & 1], *c = differs[2][value >> 1 & 1],
                    *d = differs[3][value & 1];
        for (std::size_t i = 0; i < 16; ++i)
            out[i] = weights[0] * a[i] + weights[1] * b[i] + weights[2] * c[i] + weights[3] * d[i];
    }
}

// Sixteen bytes of sixteen rows, a line per byte.
inline void transpose(const std::uint8_t *const *rows, std::size_t first, std::size_t n, std::uint8_t *out) {
    using Bytes = std::uint8_t __attribute__((vector_size(16)));
    Bytes lines[rows_together], turned[rows_together];
    for (std::size_t i = 0; i < rows_together; ++i) {
        if (n < rows_together) lines[i] = Bytes{};
        __builtin_memcpy(&lines[i], rows[i] + first, n < rows_together ? n : rows_together);
    }
    for (int round = 0; round < 4; ++round) {
        for (std::size_t i = 0; i < rows_together / 2; ++i) {
            const Bytes x = lines[i], y = lines[i + rows_together / 2];
            turned[2 * i] = __builtin_shufflevector(x, y, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            turned[2 * i + 1] = __builtin_shufflevector(x, y, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        }
        __builtin_memcpy(lines, turned, sizeof lines);
    }
    __builtin_memcpy(out, lines, sizeof lines);
}

// Floats: add_entries(high table, low table, bytes of 16 rows), to two sums.
template <typename Floats>
void half_byte_sums(const std::uint8_t *const *rows, std::size_t n_bytes, const float *tables, float *out) {
    Floats high = Floats::zero(), low = Floats::zero();
    for (std::size_t first = 0; first < n_bytes; first += rows_together) {
        std::uint8_t lines[rows_together * rows_together];
        const std::size_t n = n_bytes - first < rows_together ? n_bytes - first : rows_together;
        transpose(rows, first, n, lines);
        for (std::size_t byte = 0; byte < n; ++byte, tables += 32)
            Floats::add_entries(high, low, tables, lines + byte * rows_together);
    }
    high.add(low);
    float sums[rows_together];
    high.store(sums);
    for (std::size_t i = 0; i < rows_together; ++i) out[i] += sums[i];
}

template <typename Line, typename Sums, typename Floats>
constexpr Scanner scanner_of() {
    return {.index_bits = Line::index_bits,
            .rows8 = rows8<Line>,
            .rows8_of_four = rows8_of_four<Line>,
            .rows16 = rows16<Line, Sums>,
            .sums16 = sums16<Line, Sums>,
            .within16 = within16<Sums>,
            .prepare = prepare<Line>,
            .rows16_of_four = rows16_of_four<Line, Sums>,
            .blocks8 = blocks8<Line>,
            .blocks16 = blocks16<Line, Sums>,
            .uniform = uniform<Line>,
            .round_down = round_down,
            .differences = differences<Floats>,
            .set_row = set_row<Floats>,
            .hamming = hamming,
            .count = count,
            .count_within = count_within,
            .distances = distances<Floats>,
            .half_byte_tables = half_byte_tables,
            .half_byte_sums = half_byte_sums<Floats>};
}

}  // namespace
}  // namespace bitrank
