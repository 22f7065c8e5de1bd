// The kernel without Python: every path against plain references. Built and run by `make sanitize` (AddressSanitizer,
// UndefinedBehaviorSanitizer, ThreadSanitizer) and, for 64-bit ARM under qemu, by `make test-neon`.
#include "paths.hpp"
#include "testing.hpp"

int main(int argc, char **argv) {
    const std::size_t n_cases = argc > 1 ? static_cast<std::size_t>(std::atoi(argv[1])) : 60;
    for (const auto test :
         {test_rows8, test_rows8_of_four, test_rows16, test_rows16_of_four, test_sums16, test_blocks})
        test(n_cases / 2);
    test_search(n_cases);
    test_concurrent_searches();
    test_distances();
    test_checksum();
    test_ties(20 * n_cases);
    test_margins_and_combine(n_cases);
    test_gram(n_cases);
    test_passive_aggressive(n_cases);
    test_concurrent_constraints();
    std::printf("kernel tests passed on:");
    for (const std::string &name : bitrank::path_names()) std::printf(" %s", name.c_str());
    std::printf("\n");
}
