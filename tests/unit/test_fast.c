/* SPDX-License-Identifier: BSD-2-Clause */
/* interpose/fast.h: who is found, and who is not (any more). */
#include "interpose/fast.h"

#include <criterion/criterion.h>

static struct fast t[1 << FAST_BITS];
static uint64_t counter, other;

static void *address(uintptr_t n)
{
	return (void *)(n << 6);
}

/* Another address with the same entry. */
static void *rival_of(const void *p)
{
	uintptr_t n = 1;

	while (address(n) == p || fast_at(t, address(n)) != fast_at(t, p))
		n++;
	return address(n);
}

Test(fast, finds_what_was_put_and_nothing_else)
{
	void *p = address(12345);

	cr_assert_null(fast_look(t, p));
	fast_put(t, p, (struct fast){.fn = &t, .activity = &counter, .complete = &other});
	cr_assert_not_null(fast_look(t, p));
	cr_expect_eq(fast_look(t, p)->fn, (void *)&t);
	cr_expect_eq(fast_look(t, p)->activity, &counter);
	cr_expect_eq(fast_look(t, p)->complete, (void *)&other);
	cr_expect_null(fast_look(t, rival_of(p)));
}

Test(fast, an_entry_belongs_to_whom_came_first_until_it_goes)
{
	void *p = address(12345), *q = rival_of(p);

	fast_put(t, p, (struct fast){.fn = &t});
	fast_put(t, q, (struct fast){.fn = &counter});
	cr_expect_null(fast_look(t, q));
	cr_expect_eq(fast_look(t, p)->fn, (void *)&t);
	fast_del(t, q);
	cr_expect_not_null(fast_look(t, p), "only its owner gives it up");
	fast_del(t, p);
	cr_expect_null(fast_look(t, p));
	fast_put(t, q, (struct fast){.fn = &counter});
	cr_expect_eq(fast_look(t, q)->fn, (void *)&counter);
}

Test(fast, a_suspended_one_is_not_found_and_keeps_its_entry)
{
	void *p = address(12345), *q = rival_of(p);

	fast_put(t, p, (struct fast){.fn = &t});
	fast_suspend(t, q);
	cr_expect_not_null(fast_look(t, p));
	fast_suspend(t, p);
	cr_expect_null(fast_look(t, p));
	fast_put(t, q, (struct fast){.fn = &counter});
	cr_expect_null(fast_look(t, q));
	fast_put(t, p, (struct fast){.fn = &t});
	cr_expect_not_null(fast_look(t, p));
	fast_suspend(t, p);
	fast_del(t, p);
	fast_put(t, q, (struct fast){.fn = &counter});
	cr_expect_not_null(fast_look(t, q));
}

Test(fast, neighbours_in_memory_do_not_share_entries)
{
	unsigned found = 0;

	/* QPs of one size from one allocator: a quarter of the entries. */
	for (uintptr_t i = 0; i < 256; i++)
		fast_put(t, (void *)(0x555555600010 + i * 1040), (struct fast){.fn = &t});
	for (uintptr_t i = 0; i < 256; i++)
		found += fast_look(t, (void *)(0x555555600010 + i * 1040)) != NULL;
	cr_expect_geq(found, 200);
}

Test(fast, forget_forgets_everything)
{
	void *p = address(7);

	fast_put(fast_qps, p, (struct fast){.fn = &t});
	fast_put(fast_cqs, p, (struct fast){.fn = &t});
	fast_suspend(fast_cqs, p);
	fast_forget();
	cr_expect_null(fast_look(fast_qps, p));
	fast_put(fast_cqs, rival_of(p), (struct fast){.fn = &t});
	cr_expect_not_null(fast_look(fast_cqs, rival_of(p)));
}
