// The path of x86-64 servers since 2019, with tables of 64 entries; compiled with -mavx512vbmi, called only on processors
// that support it.
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

}  // namespace

const Scanner avx512vbmi_scanner = scanner_of<Lines<SixBits>, Sums, Floats>();

}  // namespace bitrank
