// The path of x86-64 servers since 2019, with tables of 64 entries and bits counted eight words at a time; compiled with
// -mavx512vbmi and -mavx512vpopcntdq, called only on processors that support both.
#include "scan_avx512.hpp"

namespace bitrank {
namespace {

// `look_up` ignores the high two bits; those of three lines are shifted into one index, the low bits of the first out of
// it.
struct SixBits {
    static constexpr unsigned index_bits = 6;
    static constexpr std::size_t blocks_of_one = 4;

    template <typename Line>
    static void expand(const Line *lines, Line *indices) {
        const __m512i high_bits = _mm512_set1_epi8(static_cast<char>(0xc0));
        __m512i high = _mm512_srli_epi16(lines[0].a, 2);
        for (int i = 0; i < 3; ++i) {
            indices[i] = lines[i];
            if (i) high = _mm512_srli_epi16(_mm512_ternarylogic_epi64(high_bits, lines[i].a, high, 0xca), 2);
        }
        indices[3] = high;
    }
    static __m512i table(const std::uint8_t *p) { return _mm512_loadu_si512(p); }
    static __m512i look_up(__m512i table, __m512i x) { return _mm512_permutexvar_epi8(x, table); }
};

template <std::size_t fixed_words>
void count_vectors_of(const std::uint64_t *query, const std::uint64_t *groups, std::size_t n_groups, std::size_t n_words,
                      std::uint16_t *out) {
    if (fixed_words) n_words = fixed_words;
    for (std::size_t group = 0; group < n_groups; ++group, out += codes_per_group) {
        __m512i sums = _mm512_setzero_si512();
BITRANK_UNROLL(8)
        for (std::size_t word = 0; word < n_words; ++word, groups += codes_per_group) {
            const __m512i asked = _mm512_set1_epi64(static_cast<long long>(query[word]));
            const __m512i differs = _mm512_xor_si512(asked, _mm512_loadu_si512(groups));
            sums = _mm512_add_epi64(sums, _mm512_popcnt_epi64(differs));
        }
        _mm_storeu_si128(reinterpret_cast<__m128i *>(out), _mm512_cvtepi64_epi16(sums));
    }
}

void count_vectors(const std::uint64_t *query, const std::uint64_t *groups, std::size_t n_groups, std::size_t n_words,
                   std::uint16_t *out) {
    switch (n_words) {
        case 1: return count_vectors_of<1>(query, groups, n_groups, n_words, out);
        case 2: return count_vectors_of<2>(query, groups, n_groups, n_words, out);
        case 4: return count_vectors_of<4>(query, groups, n_groups, n_words, out);
        case 6: return count_vectors_of<6>(query, groups, n_groups, n_words, out);
        default: return count_vectors_of<0>(query, groups, n_groups, n_words, out);
    }
}

constexpr Scanner scanner() {
    Scanner out = scanner_of<Lines<SixBits>, Sums, Floats>();
    out.count = count_vectors;
    return out;
}

}  // namespace

const Scanner avx512vbmi_scanner = scanner();

}  // namespace bitrank
