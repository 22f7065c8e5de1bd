// The path of x86-64 servers since 2017; compiled with -mavx512bw and -mavx512vl, called only on processors that support it.
#include "scan_avx512.hpp"

namespace bitrank {
namespace {

struct HalfBytes {
    static constexpr unsigned index_bits = 4;
    static constexpr std::size_t blocks_of_one = 2;

    template <typename Line>
    static void expand(const Line *lines, Line *indices) {
        expand_half_bytes(lines, indices);
    }
    static __m512i table(const std::uint8_t *p) {
        return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)));
    }
    static __m512i look_up(__m512i table, __m512i x) { return _mm512_shuffle_epi8(table, x); }
};

}  // namespace

const Scanner avx512_scanner = scanner_of<Lines<HalfBytes>, Sums, Floats>();

}  // namespace bitrank
