// Vectors of FIPS 180-4's examples and RFC 4231, and lengths around a block against coreutils.
#include "llmc/base/sha256.h"

#include <fstream>

#include "test/test.h"

static std::string hex(const Sha256& hash) {
    std::string text;
    for (const uint8_t byte : hash) text += fmt::format("{:02x}", byte);
    return text;
}

TEST(hashes_of_the_standard) {
    EXPECT(hex(sha256("")) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT(hex(sha256("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT(hex(sha256(std::string(1000000, 'a'))) ==
           "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(keyed_hashes_of_the_standard) {
    EXPECT(hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")) ==
           "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    EXPECT(hex(hmac_sha256("Jefe", "what do ya want for nothing?")) ==
           "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    EXPECT(hex(hmac_sha256(std::string(131, '\xaa'),
                           "Test Using Larger Than Block-Size Key - Hash Key First")) ==
           "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(every_length_around_a_block) {
    const std::string file = test::temporary_directory() + "/data";
    for (const int length : {1, 54, 55, 56, 57, 63, 64, 65, 119, 120, 127, 128, 129, 1000}) {
        std::string data;
        for (int i = 0; i < length; i++) data += char(i * 37 + 11);
        std::ofstream(file, std::ios::binary) << data;
        const test::Ran ran = test::run("sha256sum < '" + file + "'");
        EXPECT(ran.out == hex(sha256(data)) + "  -\n", "%d bytes: %s", length, ran.out.c_str());
    }
}

TEST(one_bit_makes_another_hash) {
    const Sha256 hash = sha256("abc");
    EXPECT(same_hash(hash, sha256("abc")));
    for (size_t i = 0; i < 8 * hash.size(); i++) {
        Sha256 other = hash;
        other[i / 8] ^= uint8_t(1 << i % 8);
        EXPECT(!same_hash(hash, other), "bit %zu", i);
    }
}
