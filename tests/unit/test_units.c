/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbers with units: as they are read, and as they are shown. */
#include <criterion/criterion.h>
#include <stdint.h>

#include "config/units.h"

#define BAD UINT64_C(0xdeadbeef) /* no test parses to this */

static uint64_t count(const char *text)
{
	uint64_t v = BAD;

	return rnice_parse_count(text, &v) ? v : BAD;
}

static uint64_t bytes(const char *text)
{
	uint64_t v = BAD;

	return rnice_parse_bytes(text, &v) ? v : BAD;
}

static uint64_t rate(const char *text)
{
	uint64_t v = BAD;

	return rnice_parse_rate(text, &v) ? v : BAD;
}

Test(units, bytes_take_binary_suffixes_in_either_case)
{
	cr_expect_eq(bytes("4096"), 4096);
	cr_expect_eq(bytes("64k"), 64 << 10);
	cr_expect_eq(bytes("3M"), 3 << 20);
	cr_expect_eq(bytes("1g"), 1 << 30);
	cr_expect_eq(bytes("1T"), UINT64_C(1) << 40);
}

Test(units, fractions_of_bytes_are_dropped)
{
	cr_expect_eq(bytes("1.5m"), 3 << 19);
	cr_expect_eq(bytes("0.3k"), 307);
	cr_expect_eq(bytes("0.5"), 0);
}

Test(units, rates_are_decimal_bits_or_bytes_per_second)
{
	cr_expect_eq(rate("800bit"), 100);
	cr_expect_eq(rate("8kbit"), 1000);
	cr_expect_eq(rate("100mbit"), 12500000);
	cr_expect_eq(rate("1.5gbit"), 187500000);
	cr_expect_eq(rate("1tbit"), UINT64_C(125000000000));
	cr_expect_eq(rate("10MB/s"), 10000000);
	cr_expect_eq(rate("7B/s"), 7);
}

Test(units, rates_have_binary_prefixes_too)
{
	cr_expect_eq(rate("8kibit"), 1024);
	cr_expect_eq(rate("1GiB/s"), 1 << 30);
}

Test(units, rates_without_a_clear_unit_are_refused)
{
	cr_expect_eq(rate("1000"), BAD);
	cr_expect_eq(rate("10mbps"), BAD);
	cr_expect_eq(rate("10mb/s"), BAD);
	cr_expect_eq(rate("10MB"), BAD);
	cr_expect_eq(rate("10ibit"), BAD);
	cr_expect_eq(rate("10gbit/s"), BAD);
}

Test(units, anything_but_a_plain_decimal_is_refused)
{
	static const char *const texts[] = {
		"",    " 1",  "1 ",   "+1", "-1",  "1e3", "0x10", ".5",	 "1.",
		"1,5", "1..", "1.5.", "k",  "1kk", "1kb", "inf",  "nan", "1.k",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		cr_expect_eq(bytes(texts[i]), BAD, "\"%s\"", texts[i]);
		cr_expect_eq(count(texts[i]), BAD, "\"%s\"", texts[i]);
		cr_expect_eq(rate(texts[i]), BAD, "\"%s\"", texts[i]);
	}
}

Test(units, the_largest_number_is_read_exactly)
{
	cr_expect_eq(count("18446744073709551615"), UINT64_MAX);
	cr_expect_eq(bytes("18446744073709551614"), UINT64_MAX - 1);
}

Test(units, numbers_too_large_stop_at_the_largest)
{
	cr_expect_eq(count("18446744073709551616"), UINT64_MAX);
	cr_expect_eq(bytes("99999999999999999999999999999999999999990"), UINT64_MAX);
	cr_expect_eq(bytes("16777216t"), UINT64_MAX);
	cr_expect_eq(rate("18446744073709551615TiB/s"), UINT64_MAX);
}

Test(units, places_beyond_the_precision_change_nothing)
{
	cr_expect_eq(bytes("1.50000000000000000000000000000000000000009k"), 1536);
	cr_expect_eq(bytes("0.99999999999999999999999999999999999999990"), 0);
}

Test(units, leading_zeros_do_not_count)
{
	cr_expect_eq(count("00000000000000000000000000000000000000000017"), 17);
}

Test(units, bytes_are_shown_with_the_largest_suffix_that_divides_them)
{
	char text[32];

	rnice_format_bytes(65536, text, sizeof(text));
	cr_expect_str_eq(text, "64k");
	rnice_format_bytes(100000, text, sizeof(text));
	cr_expect_str_eq(text, "100000");
	rnice_format_bytes(0, text, sizeof(text));
	cr_expect_str_eq(text, "0");
}

Test(units, rates_are_shown_in_bits_with_three_decimals_at_most)
{
	char text[32];

	rnice_format_rate(187500000, text, sizeof(text));
	cr_expect_str_eq(text, "1.5gbit");
	rnice_format_rate(12345678, text, sizeof(text));
	cr_expect_str_eq(text, "98765.424kbit");
	rnice_format_rate(1, text, sizeof(text));
	cr_expect_str_eq(text, "8bit");
}

Test(units, whatever_is_shown_reads_back_as_the_same_number)
{
	uint64_t v = 1;
	char text[32];

	for (int i = 0; i < 100000; i++) {
		v = v * UINT64_C(6364136223846793005) + 1442695040888963407; /* Knuth's MMIX */
		rnice_format_bytes(v >> (i % 64), text, sizeof(text));
		cr_assert_eq(bytes(text), v >> (i % 64), "%s", text);
		rnice_format_rate(v >> (3 + i % 61), text, sizeof(text));
		cr_assert_eq(rate(text), v >> (3 + i % 61), "%s", text);
	}
}
