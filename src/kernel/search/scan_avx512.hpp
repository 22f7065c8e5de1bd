// The types of scan_loops.hpp for AVX-512, included by the files of both AVX-512 paths.
#pragma once

#include <immintrin.h>

#include "scan_loops.hpp"

namespace bitrank {
namespace {

// Indices: index_bits, blocks_of_one, expand(lines, indices), table(p), look_up(table, indices).
template <typename Indices>
struct Lines : Indices {
    using Line = Lines;
    static constexpr std::size_t blocks_of_four = 2;
    __m512i a;

    Lines() = default;
    Lines(__m512i value) : a(value) {}
    static void expand(const Line *lines, Line *indices) { Indices::expand(lines, indices); }
    static Line load(const std::uint8_t *p) { return _mm512_loadu_si512(p); }
    static void store(std::uint8_t *p, Line x) { _mm512_storeu_si512(p, x.a); }
    static Line same(std::uint8_t value) { return _mm512_set1_epi8(static_cast<char>(value)); }
    static Line and_(Line x, Line y) { return _mm512_and_si512(x.a, y.a); }
    static Line or_(Line x, Line y) { return _mm512_or_si512(x.a, y.a); }
    static Line xor_(Line x, Line y) { return _mm512_xor_si512(x.a, y.a); }
    static Line low(Line x) { return and_(x, same(15)); }
    static Line high(Line x) { return and_(_mm512_srli_epi16(x.a, 4), same(15)); }
    static Line look_up(__m512i table, Line x) { return Indices::look_up(table, x.a); }
    static Line look_up16(const std::uint8_t *p, Line x) {
        const __m128i entries = _mm_loadu_si128(reinterpret_cast<const __m128i *>(p));
        return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(entries), x.a);
    }
    static Line add(Line x, Line y) { return _mm512_adds_epu8(x.a, y.a); }
    static Line average(Line x, Line y) { return _mm512_avg_epu8(x.a, y.a); }
    static std::uint64_t below_top(Line x) { return _mm512_cmpneq_epu8_mask(x.a, _mm512_set1_epi8(-1)); }
};

struct Sums {
    __m512i even, odd;  // of the bytes with even and odd numbers

    static Sums zero() { return {_mm512_setzero_si512(), _mm512_setzero_si512()}; }
    template <typename Line>
    void add(Line x, std::uint32_t factor) {
        const __m512i low = _mm512_set1_epi32(static_cast<int>(factor));
        even = _mm512_add_epi16(even, _mm512_maddubs_epi16(x.a, low));
        odd = _mm512_add_epi16(odd, _mm512_maddubs_epi16(x.a, _mm512_slli_epi16(low, 8)));
    }
    void store(std::uint16_t *p) const {
        _mm512_storeu_si512(p, even);
        _mm512_storeu_si512(p + lane_count / 2, odd);
    }
    static Sums load(const std::uint16_t *p) {
        return {_mm512_loadu_si512(p), _mm512_loadu_si512(p + lane_count / 2)};
    }
    std::uint64_t within(std::uint16_t limit) const {
        const __m512i v = _mm512_set1_epi16(static_cast<short>(limit));
        const __mmask32 even_in = _mm512_cmple_epu16_mask(even, v), odd_in = _mm512_cmple_epu16_mask(odd, v);
        if (__builtin_expect(!(even_in | odd_in), 1)) return 0;
        return _mm512_movepi8_mask(_mm512_or_si512(_mm512_maskz_set1_epi16(even_in, 0x00ff),
                                                   _mm512_maskz_set1_epi16(odd_in, static_cast<short>(0xff00))));
    }
};

struct Floats {
    using Difference = std::uint8_t;
    __m512 a;

    static Floats zero() { return {_mm512_setzero_ps()}; }
    static void differences(const std::uint8_t *line, std::uint8_t query, std::uint8_t *out) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i *>(line));
        const __m128i code = _mm_set1_epi8(static_cast<char>(query));
        _mm_storeu_si128(reinterpret_cast<__m128i *>(out), _mm_xor_si128(bytes, code));
    }
    void add_where(const std::uint8_t *differences, std::uint32_t mask, float weight) {
        const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i *>(differences));
        const __mmask16 where = _mm_test_epi8_mask(bits, _mm_set1_epi32(static_cast<int>(mask)));
        a = _mm512_mask_add_ps(a, where, a, _mm512_set1_ps(weight));
    }
    void add(Floats x) { a = _mm512_add_ps(a, x.a); }
    static void add_entries(Floats &high, Floats &low, const float *tables, const std::uint8_t *bytes) {
        const __m512i values = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(bytes)));
        // A look-up ignores all but four bits.
        high.a = _mm512_add_ps(high.a, _mm512_permutexvar_ps(_mm512_srli_epi32(values, 4), _mm512_loadu_ps(tables)));
        low.a = _mm512_add_ps(low.a, _mm512_permutexvar_ps(values, _mm512_loadu_ps(tables + 16)));
    }
    void store(float *p) const { _mm512_storeu_ps(p, a); }
};

}  // namespace
}  // namespace bitrank
