/* SPDX-License-Identifier: BSD-2-Clause */
#include "interpose/table.h"

#include <criterion/criterion.h>
#include <stdlib.h>

Test(table, finds_what_was_put_and_nothing_else)
{
	struct table t = TABLE_INIT;
	uint64_t k;

	cr_assert_null(table_get(&t, 16));
	for (k = 1; k <= 10000; k++)
		cr_assert_eq(table_put(&t, k * 16, (void *)(uintptr_t)k), 0);
	for (k = 1; k <= 10000; k++)
		cr_assert_eq(table_get(&t, k * 16), (void *)(uintptr_t)k);
	cr_assert_null(table_get(&t, 10001 * 16));
}

Test(table, a_deleted_key_is_gone_and_its_place_is_used_again)
{
	struct table t = TABLE_INIT;
	uint64_t k;

	for (k = 1; k <= 100000; k++) {
		cr_assert_eq(table_put(&t, k * 64, &t), 0);
		table_del(&t, k * 64, &t);
		cr_assert_null(table_get(&t, k * 64));
	}
	cr_assert_leq(atomic_load(&t.slots)->used, 64);
}

Test(table, a_key_that_was_given_to_another_value_is_not_deleted)
{
	struct table t = TABLE_INIT;
	int a, b;

	cr_assert_eq(table_put(&t, 64, &a), 0);
	cr_assert_eq(table_put(&t, 64, &b), 0);
	table_del(&t, 64, &a);
	cr_assert_eq(table_get(&t, 64), &b);
}

Test(table, deleting_what_is_not_there_is_harmless)
{
	struct table t = TABLE_INIT;

	table_del(&t, 64, NULL);
	cr_assert_eq(table_put(&t, 128, &t), 0);
	table_del(&t, 64, &t);
	cr_assert_eq(table_get(&t, 128), &t);
}
