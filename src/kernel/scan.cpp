#include "scan.hpp"

namespace bitrank {
namespace {

// Slowest first.
std::vector<const Scanner *> available() {
    std::vector<const Scanner *> out{&scalar_scanner};
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) out.push_back(&avx2_scanner);
    if (__builtin_cpu_supports("avx512bw")) out.push_back(&avx512_scanner);
#elif defined(__aarch64__)
    out.push_back(&neon_scanner);
#endif
    return out;
}

}  // namespace

const Scanner *scanner(const std::string &name) {
    static const std::vector<const Scanner *> all = available();
    if (name.empty()) return all.back();
    for (const Scanner *one : all)
        if (name == one->name) return one;
    return nullptr;
}

std::vector<std::string> scanner_names() {
    std::vector<std::string> out;
    for (const Scanner *one : available()) out.emplace_back(one->name);
    return out;
}

}  // namespace bitrank
