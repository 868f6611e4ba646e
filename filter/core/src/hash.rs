//! The one hash: XXH64, seed 0, as Envoy and the published vectors have it.

use xxhash_rust::xxh64::xxh64;

/// Seed of every hash; the same in every proxy, so that all of them build the same ring.
const SEED: u64 = 0;

/// Hashes `bytes` with XXH64, seed 0. Source: the xxHash specification, <https://github.com/Cyan4973/xxHash>.
#[must_use]
pub fn hash(bytes: &[u8]) -> u64 {
    xxh64(bytes, SEED)
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn agrees_with_envoys_published_vectors() {
        for (text, expected) in [
            ("", 17241709254077376921),
            ("foo", 3728699739546630719),
            ("bar", 5234164152756840025),
            ("foo\nbar", 8917841378505826757),
            ("lyft", 4400747396090729504),
        ] {
            assert_eq!(hash(text.as_bytes()), expected, "{text:?}");
        }
    }

    /// The reference implementation's own check buffer: byte i is the top byte of a 64-bit value that starts at
    /// 2654435761 and is multiplied by 11400714785074694797 at each step.
    #[test]
    fn agrees_with_the_reference_check_buffer() {
        let mut state: u64 = 2_654_435_761;
        let buffer: Vec<u8> = (0..222)
            .map(|_| {
                let byte = (state >> 56) as u8;
                state = state.wrapping_mul(11_400_714_785_074_694_797);
                byte
            })
            .collect();
        assert_eq!(buffer[..8], [0x00, 0x52, 0x92, 0x9b, 0xb7, 0x32, 0xa3, 0x24]);
        for (length, expected) in [
            (0, 0xEF46_DB37_51D8_E999),
            (1, 0xE934_A84A_DB05_2768),
            (3, 0xFF7E_1959_CB50_794A),
            (4, 0x9136_A0DC_A574_57EE),
            (8, 0xCDBC_F538_E71D_1348),
            (14, 0x8282_DCC4_994E_35C8),
            (16, 0x98C9_0B57_FDFC_B55C),
            (222, 0xB641_AE8C_B691_C174),
        ] {
            assert_eq!(hash(&buffer[..length]), expected, "length {length}");
        }
    }
}
