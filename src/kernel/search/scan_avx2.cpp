// The path of x86-64 machines since 2013; compiled with -mavx2, called only on processors that support it.
#include <immintrin.h>

#include "scan_loops.hpp"

namespace bitrank {
namespace {

struct Line {
    __m256i a, b;

    static constexpr unsigned index_bits = 4;
    static constexpr std::size_t blocks_of_one = 1, blocks_of_four = 1;
    static void expand(const Line *lines, Line *indices) { expand_half_bytes(lines, indices); }
    static Line load(const std::uint8_t *p) {
        const auto *lines = reinterpret_cast<const __m256i *>(p);
        return {_mm256_loadu_si256(lines), _mm256_loadu_si256(lines + 1)};
    }
    static Line same(std::uint8_t value) {
        const __m256i v = _mm256_set1_epi8(static_cast<char>(value));
        return {v, v};
    }
    static __m256i table(const std::uint8_t *p) {
        return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)));
    }
    static Line and_(const Line &x, const Line &y) { return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)}; }
    static Line or_(const Line &x, const Line &y) { return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)}; }
    static Line xor_(const Line &x, const Line &y) { return {_mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b)}; }
    static Line low(const Line &x) { return and_(x, same(15)); }
    static Line high(const Line &x) { return and_({_mm256_srli_epi16(x.a, 4), _mm256_srli_epi16(x.b, 4)}, same(15)); }
    static Line look_up(__m256i table, const Line &x) {
        return {_mm256_shuffle_epi8(table, x.a), _mm256_shuffle_epi8(table, x.b)};
    }
    static Line add(const Line &x, const Line &y) { return {_mm256_adds_epu8(x.a, y.a), _mm256_adds_epu8(x.b, y.b)}; }
    static Line average(const Line &x, const Line &y) { return {_mm256_avg_epu8(x.a, y.a), _mm256_avg_epu8(x.b, y.b)}; }
    static std::uint64_t below_top(const Line &x) {
        const __m256i top = _mm256_set1_epi8(-1);
        const auto a = static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(x.a, top)));
        const auto b = static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(x.b, top)));
        return ~(a | std::uint64_t{b} << 32);
    }
    static Line look_up16(const std::uint8_t *p, const Line &x) { return look_up(table(p), x); }
};

struct Sums {
    __m256i even_a, even_b, odd_a, odd_b;  // of the bytes with even and odd numbers

    static Sums zero() {
        const __m256i v = _mm256_setzero_si256();
        return {v, v, v, v};
    }
    void add(const Line &x, std::uint32_t factor) {
        const __m256i low = _mm256_set1_epi32(static_cast<int>(factor)), high = _mm256_slli_epi16(low, 8);
        even_a = _mm256_add_epi16(even_a, _mm256_maddubs_epi16(x.a, low));
        even_b = _mm256_add_epi16(even_b, _mm256_maddubs_epi16(x.b, low));
        odd_a = _mm256_add_epi16(odd_a, _mm256_maddubs_epi16(x.a, high));
        odd_b = _mm256_add_epi16(odd_b, _mm256_maddubs_epi16(x.b, high));
    }
    void store(std::uint16_t *p) const {
        auto *lines = reinterpret_cast<__m256i *>(p);
        _mm256_storeu_si256(lines, even_a);
        _mm256_storeu_si256(lines + 1, even_b);
        _mm256_storeu_si256(lines + 2, odd_a);
        _mm256_storeu_si256(lines + 3, odd_b);
    }
    static Sums load(const std::uint16_t *p) {
        const auto *lines = reinterpret_cast<const __m256i *>(p);
        return {_mm256_loadu_si256(lines), _mm256_loadu_si256(lines + 1), _mm256_loadu_si256(lines + 2),
                _mm256_loadu_si256(lines + 3)};
    }
    static std::uint32_t within_half(__m256i even, __m256i odd, __m256i limit) {
        const __m256i even_in = _mm256_cmpeq_epi16(_mm256_min_epu16(even, limit), even);
        const __m256i odd_in = _mm256_cmpeq_epi16(_mm256_min_epu16(odd, limit), odd);
        return static_cast<std::uint32_t>(
            _mm256_movemask_epi8(_mm256_blendv_epi8(even_in, odd_in, _mm256_set1_epi16(static_cast<short>(0xff00)))));
    }
    std::uint64_t within(std::uint16_t limit) const {
        const __m256i v = _mm256_set1_epi16(static_cast<short>(limit));
        return within_half(even_a, odd_a, v) | std::uint64_t{within_half(even_b, odd_b, v)} << 32;
    }
};

struct Floats {
    using Difference = std::uint32_t;
    __m256 a, b;

    static Floats zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
    static __m256 where(const std::uint32_t *differences, __m256i mask, __m256 weight) {
        const __m256i bits = _mm256_and_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(differences)), mask);
        return _mm256_and_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(bits, mask)), weight);
    }
    void add_where(const std::uint32_t *differences, std::uint32_t mask, float weight) {
        const __m256i m = _mm256_set1_epi32(static_cast<int>(mask & 255));
        const __m256 w = _mm256_set1_ps(weight);
        a = _mm256_add_ps(a, where(differences, m, w));
        b = _mm256_add_ps(b, where(differences + 8, m, w));
    }
    void add(const Floats &x) {
        a = _mm256_add_ps(a, x.a);
        b = _mm256_add_ps(b, x.b);
    }
    static __m256 entries(const float *table, __m256i values) {
        const __m256 small = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), values);
        const __m256 large = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table + 8), values);
        return _mm256_blendv_ps(small, large, _mm256_castsi256_ps(_mm256_slli_epi32(values, 28)));
    }
    static void add_entries(Floats &high, Floats &low, const float *tables, const std::uint8_t *bytes) {
        const __m128i all = _mm_loadu_si128(reinterpret_cast<const __m128i *>(bytes));
        const __m256i a = _mm256_cvtepu8_epi32(all), b = _mm256_cvtepu8_epi32(_mm_srli_si128(all, 8));
        high.add({entries(tables, _mm256_srli_epi32(a, 4)), entries(tables, _mm256_srli_epi32(b, 4))});
        low.add({entries(tables + 16, a), entries(tables + 16, b)});
    }
    void store(float *p) const {
        _mm256_storeu_ps(p, a);
        _mm256_storeu_ps(p + 8, b);
    }
    static void differences(const std::uint8_t *line, std::uint8_t query, std::uint32_t *out) {
        const __m128i bytes = _mm_xor_si128(_mm_loadu_si128(reinterpret_cast<const __m128i *>(line)),
                                            _mm_set1_epi8(static_cast<char>(query)));
        auto *words = reinterpret_cast<__m256i *>(out);
        _mm256_storeu_si256(words, _mm256_cvtepu8_epi32(bytes));
        _mm256_storeu_si256(words + 1, _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8)));
    }
};

}  // namespace

const Scanner avx2_scanner = scanner_of<Line, Sums, Floats>();

}  // namespace bitrank
