/* SPDX-License-Identifier: BSD-2-Clause */
/* Settings: from the environment to struct rnice_config, and what is told on the way. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "config/setting.h"

#define MAX_LINES 16

/* What rnice_config_load() told. */
struct told {
	int count;
	char line[MAX_LINES][2 * RNICE_CONFIG_LINE];
};

static void listen(void *arg, const char *line)
{
	struct told *told = arg;

	if (told->count < MAX_LINES)
		snprintf(told->line[told->count], sizeof(told->line[0]), "%s", line);
	told->count++;
}

#define ENV(...) ((char *const[]){__VA_ARGS__, NULL})

static struct rnice_config load(char *const *env, struct told *told)
{
	struct rnice_config cfg;

	memset(told, 0, sizeof(*told));
	memset(&cfg, 0xa5, sizeof(cfg));
	cr_expect_eq(rnice_config_load(&cfg, env, listen, told), told->count);
	return cfg;
}

static const char *in_force(const struct rnice_config *cfg, const char *name)
{
	static char text[RNICE_SETTING_TEXT];

	rnice_setting_format(rnice_setting_find(name), cfg, text, sizeof(text));
	return text;
}

/* The value of @entry's setting after loading just that; fails the test if there was a problem. */
static const char *value_of(const char *name, const char *value)
{
	struct told told;
	char entry[512];
	struct rnice_config cfg;

	snprintf(entry, sizeof(entry), "%s=%s", name, value);
	cfg = load(ENV(entry), &told);
	cr_expect_eq(told.count, 0, "%s: %s", entry, told.line[0]);
	return in_force(&cfg, name);
}

static bool refused(const char *name, const char *value)
{
	struct rnice_config cfg, before;

	rnice_config_init(&cfg);
	before = cfg;
	return rnice_config_set(&cfg, name, value, RNICE_FROM_OPTION, NULL, 0) == EINVAL &&
	       memcmp(&cfg, &before, sizeof(cfg)) == 0;
}

/* ---- defaults ---- */

Test(config, an_empty_environment_gives_the_documented_defaults)
{
	struct told told;
	struct rnice_config cfg = load(NULL, &told);

	cr_expect_eq(told.count, 0);
	cr_expect_eq(cfg.cls, RNICE_CLASS_AUTO);
	cr_expect_eq(cfg.policy, RNICE_POLICY_PREEMPT);
	cr_expect_eq(cfg.progress, RNICE_PROGRESS_AUTO);
	cr_expect_eq(cfg.log, RNICE_LOG_WARN);
	cr_expect_eq(cfg.preempt_us, 10);
	cr_expect_eq(cfg.chunk, 0);
	cr_expect_eq(cfg.window, 0);
	cr_expect_eq(cfg.rate, 0);
	cr_expect(cfg.cut_imm);
	cr_expect_str_empty(cfg.segment);
}

Test(config, every_default_is_a_legal_value_of_its_row)
{
	struct rnice_config cfg;

	rnice_config_init(&cfg);
	for (int i = 0; i < RNICE_SETTING_COUNT; i++)
		cr_expect(rnice_setting_parse(&rnice_settings[i], rnice_settings[i].dflt, &cfg),
			  "%s", rnice_settings[i].name);
}

Test(config, every_default_under_policy_static_is_a_legal_value_of_its_row)
{
	struct rnice_config cfg;

	rnice_config_init(&cfg);
	for (int i = 0; i < RNICE_SETTING_COUNT; i++)
		if (rnice_settings[i].static_dflt)
			cr_expect(rnice_setting_parse(&rnice_settings[i],
						      rnice_settings[i].static_dflt, &cfg));
}

Test(config, a_fresh_config_says_what_the_table_says)
{
	struct rnice_config cfg;

	rnice_config_init(&cfg);
	for (int i = 0; i < RNICE_SETTING_COUNT; i++)
		if (rnice_settings[i].type != RNICE_TYPE_NAME)
			cr_expect_str_eq(in_force(&cfg, rnice_settings[i].name),
					 rnice_settings[i].dflt);
}

Test(config, policy_static_turns_auto_into_fixed_sizes)
{
	struct told told;
	struct rnice_config cfg = load(ENV("RNICE_POLICY=static"), &told);

	cr_expect_eq(cfg.chunk, 64 * 1024);
	cr_expect_eq(cfg.window, 256 * 1024);
}

Test(config, policy_static_keeps_the_sizes_that_were_given)
{
	struct told told;
	struct rnice_config cfg =
		load(ENV("RNICE_CHUNK=4k", "RNICE_POLICY=static", "RNICE_WINDOW=1m"), &told);

	cr_expect_eq(cfg.chunk, 4096);
	cr_expect_eq(cfg.window, 1 << 20);
}

Test(config, policy_static_leaves_the_rate_unlimited)
{
	struct told told;

	cr_expect_eq(load(ENV("RNICE_POLICY=static"), &told).rate, 0);
}

/* ---- values ---- */

Test(config, every_word_of_a_row_is_read_back_as_itself)
{
	for (int i = 0; i < RNICE_SETTING_COUNT; i++)
		for (const char *const *w = rnice_settings[i].words; w && *w; w++)
			cr_expect_str_eq(value_of(rnice_settings[i].name, *w), *w);
}

Test(config, words_match_in_either_case)
{
	cr_expect_str_eq(value_of("RNICE_CLASS", "BULK"), "bulk");
}

Test(config, a_word_must_match_to_its_end)
{
	cr_expect(refused("RNICE_CLASS", "bul"));
	cr_expect(refused("RNICE_CLASS", "bulky"));
}

Test(config, a_switch_is_on_or_off_and_nothing_else)
{
	struct told told;

	cr_expect_not(load(ENV("RNICE_CUT_IMM=off"), &told).cut_imm);
	cr_expect(refused("RNICE_CUT_IMM", "1"));
}

Test(config, both_bounds_of_every_number_are_legal)
{
	char values[RNICE_SETTING_TEXT];

	for (int i = 0; i < RNICE_SETTING_COUNT; i++) {
		const struct rnice_setting *s = &rnice_settings[i];
		char *min, *max;

		if (s->type != RNICE_TYPE_NUMBER)
			continue;
		rnice_setting_values(s, values, sizeof(values));
		min = strrchr(values, '|') ? strrchr(values, '|') + 1 : values;
		max = strstr(min, "..") + 2;
		max[-2] = '\0';
		cr_expect_str_eq(value_of(s->name, min), min);
		cr_expect_str_eq(value_of(s->name, max), max);
	}
}

Test(config, values_beyond_either_bound_are_refused)
{
	cr_expect(refused("RNICE_PREEMPT_US", "0"));
	cr_expect(refused("RNICE_PREEMPT_US", "100001"));
	cr_expect(refused("RNICE_CHUNK", "0"));
	cr_expect(refused("RNICE_CHUNK", "1073741825"));
	cr_expect(refused("RNICE_WINDOW", "1.1t"));
	cr_expect(refused("RNICE_RATE", "999bit"));
	cr_expect(refused("RNICE_RATE", "10.1tbit"));
}

Test(config, auto_and_unlimited_stand_for_zero)
{
	struct told told;
	struct rnice_config cfg =
		load(ENV("RNICE_CHUNK=auto", "RNICE_WINDOW=Auto", "RNICE_RATE=unlimited"), &told);

	cr_expect_eq(told.count, 0);
	cr_expect_eq(cfg.chunk | cfg.window | cfg.rate, 0);
}

Test(config, a_word_of_another_setting_is_refused)
{
	cr_expect(refused("RNICE_PREEMPT_US", "auto"));
	cr_expect(refused("RNICE_RATE", "auto"));
	cr_expect(refused("RNICE_CHUNK", "unlimited"));
}

Test(config, microseconds_take_no_suffix_and_no_fraction)
{
	cr_expect(refused("RNICE_PREEMPT_US", "1k"));
	cr_expect(refused("RNICE_PREEMPT_US", "1.5"));
}

Test(config, a_segment_is_a_name_or_an_absolute_path)
{
	cr_expect_str_eq(value_of("RNICE_SEGMENT", "mine"), "mine");
	cr_expect_str_eq(value_of("RNICE_SEGMENT", "/run/rnice/all"), "/run/rnice/all");
	cr_expect(refused("RNICE_SEGMENT", "a/b"));
	cr_expect(refused("RNICE_SEGMENT", "/"));
	cr_expect(refused("RNICE_SEGMENT", ".."));
	cr_expect(refused("RNICE_SEGMENT", "."));
}

Test(config, a_segment_that_does_not_fit_its_field_is_refused)
{
	char path[257];

	memset(path, '/', sizeof(path));
	path[255] = '\0';
	cr_expect_str_eq(value_of("RNICE_SEGMENT", path), path);
	path[255] = '/';
	path[256] = '\0';
	cr_expect(refused("RNICE_SEGMENT", path));
}

Test(config, a_segment_with_control_characters_is_refused)
{
	cr_expect(refused("RNICE_SEGMENT", "a\nb"));
	cr_expect(refused("RNICE_SEGMENT", "\033[2J"));
}

Test(config, the_default_segment_is_shown_with_the_user_id)
{
	struct told told;
	struct rnice_config cfg = load(NULL, &told);
	char expected[32];

	snprintf(expected, sizeof(expected), "rnice-%u", geteuid());
	cr_expect_str_eq(in_force(&cfg, "RNICE_SEGMENT"), expected);
}

/* ---- sources ---- */

Test(config, a_value_from_the_environment_says_so)
{
	struct told told;
	struct rnice_config cfg = load(ENV("RNICE_CLASS=auto"), &told);

	cr_expect_eq(cfg.source[0], RNICE_FROM_ENVIRONMENT);
	cr_expect_eq(cfg.source[1], RNICE_FROM_DEFAULT);
}

Test(config, a_bad_value_leaves_the_source_at_default)
{
	struct told told;

	cr_expect_eq(load(ENV("RNICE_CLASS=fast"), &told).source[0], RNICE_FROM_DEFAULT);
}

Test(config, set_records_the_source_it_was_given)
{
	struct rnice_config cfg;

	rnice_config_init(&cfg);
	cr_expect_eq(rnice_config_set(&cfg, "RNICE_CLASS", "bulk", RNICE_FROM_OPTION, NULL, 0), 0);
	cr_expect_eq(cfg.source[0], RNICE_FROM_OPTION);
}

/* ---- environment ---- */

Test(config, entries_of_others_are_passed_over)
{
	struct told told;

	load(ENV("PATH=/bin", "RNICE=1", "rnice_class=x", "XRNICE_CLASS=x", "RNIC", ""), &told);
	cr_expect_eq(told.count, 0);
}

Test(config, an_entry_without_equals_sign_is_passed_over)
{
	struct told told;

	load(ENV("RNICE_CLASS", "RNICE_NOSUCH"), &told);
	cr_expect_eq(told.count, 0);
}

Test(config, an_empty_value_stands_for_the_default)
{
	struct told told;
	struct rnice_config cfg = load(ENV("RNICE_CLASS="), &told);

	cr_expect_eq(told.count, 0);
	cr_expect_eq(cfg.cls, RNICE_CLASS_AUTO);
	cr_expect_eq(cfg.source[0], RNICE_FROM_DEFAULT);
}

Test(config, an_empty_value_given_to_set_is_refused)
{
	for (int i = 0; i < RNICE_SETTING_COUNT; i++)
		cr_expect(refused(rnice_settings[i].name, ""));
}

Test(config, of_two_entries_the_first_counts)
{
	struct told told;

	cr_expect_eq(load(ENV("RNICE_CLASS=bulk", "RNICE_CLASS=latency"), &told).cls,
		     RNICE_CLASS_BULK);
}

Test(config, a_second_entry_is_told_in_one_line)
{
	struct told told;

	load(ENV("RNICE_CLASS=bulk", "RNICE_CLASS=bulk"), &told);
	cr_assert_eq(told.count, 1);
	cr_expect_str_eq(told.line[0], "RNICE_CLASS: given more than once; the first counts");
}

Test(config, a_second_entry_does_not_mend_a_bad_first_one)
{
	struct told told;
	struct rnice_config cfg = load(ENV("RNICE_CLASS=fast", "RNICE_CLASS=bulk"), &told);

	cr_expect_eq(cfg.cls, RNICE_CLASS_AUTO);
	cr_expect_eq(told.count, 2);
}

Test(config, each_problem_is_told_in_one_line)
{
	struct told told;

	load(ENV("RNICE_CLASS=fast", "RNICE_CHUNK=0", "RNICE_LOG=warn", "RNICE_FOO=1"), &told);
	cr_expect_eq(told.count, 3);
}

Test(config, problems_count_without_anybody_to_tell)
{
	struct rnice_config cfg;

	cr_expect_eq(rnice_config_load(&cfg, ENV("RNICE_CLASS=fast", "RNICE_X="), NULL, NULL), 2);
}

Test(config, a_bad_value_does_not_disturb_the_other_settings)
{
	struct told told;

	cr_expect_eq(load(ENV("RNICE_CHUNK=0", "RNICE_CLASS=bulk"), &told).cls, RNICE_CLASS_BULK);
}

/* ---- messages ---- */

Test(config, a_bad_value_is_told_with_the_legal_ones_and_the_default)
{
	struct told told;

	load(ENV("RNICE_PREEMPT_US=0"), &told);
	cr_assert_eq(told.count, 1);
	cr_expect_str_eq(told.line[0], "RNICE_PREEMPT_US: \"0\" is not 1..100000 (microseconds); "
				       "the default is 10");
}

Test(config, an_unknown_name_is_told_with_the_nearest_known_one)
{
	struct told told;

	load(ENV("RNICE_CHUNKS=64k"), &told);
	cr_assert_eq(told.count, 1);
	cr_expect_str_eq(told.line[0], "RNICE_CHUNKS: no such setting; the nearest is RNICE_CHUNK");
}

Test(config, set_names_the_nearest_setting_too)
{
	struct rnice_config cfg;
	char err[RNICE_CONFIG_LINE];

	rnice_config_init(&cfg);
	cr_expect_eq(
		rnice_config_set(&cfg, "RNICE_PREEMPT", "1", RNICE_FROM_OPTION, err, sizeof(err)),
		ENOENT);
	cr_expect_str_eq(err, "no such setting; the nearest is RNICE_PREEMPT_US");
}

Test(config, a_message_is_one_printable_line_whatever_the_value_holds)
{
	struct told told;

	load(ENV("RNICE_CLASS=a\nb\033[2J\xff", "RNICE_\n\x01=1"), &told);
	cr_assert_eq(told.count, 2);
	for (int i = 0; i < told.count; i++)
		for (const char *c = told.line[i]; *c; c++)
			cr_expect(*c >= ' ' && *c <= '~', "line %d", i);
}

Test(config, a_message_shows_the_start_of_a_long_value)
{
	static char entry[100000] = "RNICE_CLASS=";
	struct told told;

	memset(entry + strlen(entry), 'x', sizeof(entry) - strlen(entry) - 1);
	load(ENV(entry), &told);
	cr_assert_eq(told.count, 1);
	cr_expect(strstr(told.line[0], "xxx...\" is not latency|bulk|auto"));
}

Test(config, a_message_shows_the_start_of_a_long_name)
{
	static char entry[100000] = "RNICE_";
	struct told told;

	memset(entry + strlen(entry), 'X', sizeof(entry) - strlen(entry) - 1);
	entry[sizeof(entry) - 2] = '=';
	load(ENV(entry), &told);
	cr_assert_eq(told.count, 1);
	cr_expect(strstr(told.line[0], "XXX...: no such setting"));
}

Test(config, a_phrase_is_cut_to_the_buffer_it_is_given)
{
	struct rnice_config cfg;
	char err[8];

	rnice_config_init(&cfg);
	rnice_config_set(&cfg, "RNICE_LOG", "loud", RNICE_FROM_OPTION, err, sizeof(err));
	cr_expect_str_eq(err, "\"loud\" ");
}

/* ---- nearest name ---- */

Test(nearest, a_missing_an_extra_and_a_wrong_letter_are_forgiven)
{
	cr_expect_str_eq(rnice_setting_nearest("RNICE_POLCY")->name, "RNICE_POLICY");
	cr_expect_str_eq(rnice_setting_nearest("RNICE_WINDOWS")->name, "RNICE_WINDOW");
	cr_expect_str_eq(rnice_setting_nearest("RNICE_RAGE")->name, "RNICE_RATE");
}

Test(nearest, every_name_is_its_own_nearest)
{
	for (int i = 0; i < RNICE_SETTING_COUNT; i++)
		cr_expect_eq(rnice_setting_nearest(rnice_settings[i].name), &rnice_settings[i]);
}

Test(nearest, case_does_not_count)
{
	cr_expect_str_eq(rnice_setting_nearest("rnice_cut_imm")->name, "RNICE_CUT_IMM");
}

Test(nearest, even_nothing_has_a_nearest)
{
	cr_expect_not_null(rnice_setting_nearest(""));
}

/* ---- the table ---- */

Test(table, a_lookup_finds_exact_names_only)
{
	cr_expect_null(rnice_setting_find("RNICE_class"));
	cr_expect_null(rnice_setting_find("RNICE_CLAS"));
	cr_expect_not_null(rnice_setting_find("RNICE_CLASS"));
}

Test(table, option_names_follow_from_the_setting_names)
{
	char option[RNICE_SETTING_TEXT];

	rnice_setting_option(rnice_setting_find("RNICE_PREEMPT_US"), option, sizeof(option));
	cr_expect_str_eq(option, "preempt-us");
}

Test(table, no_two_rows_share_a_name_or_a_letter)
{
	for (int i = 0; i < RNICE_SETTING_COUNT; i++)
		for (int j = 0; j < i; j++) {
			cr_expect_str_neq(rnice_settings[i].name, rnice_settings[j].name);
			cr_expect(!rnice_settings[i].letter ||
				  rnice_settings[i].letter != rnice_settings[j].letter);
		}
}

Test(table, every_row_has_help_in_whole_sentences)
{
	for (int i = 0; i < RNICE_SETTING_COUNT; i++) {
		const char *help = rnice_settings[i].help;

		cr_expect(help && *help && help[strlen(help) - 1] == '.', "%s",
			  rnice_settings[i].name);
	}
}

Test(table, every_number_has_a_unit_and_a_range)
{
	for (int i = 0; i < RNICE_SETTING_COUNT; i++)
		if (rnice_settings[i].type == RNICE_TYPE_NUMBER) {
			cr_expect_str_not_empty(rnice_setting_unit(&rnice_settings[i]));
			cr_expect_lt(rnice_settings[i].min, rnice_settings[i].max);
		}
}

Test(table, legal_values_are_spelled_out)
{
	char values[RNICE_SETTING_TEXT];

	rnice_setting_values(rnice_setting_find("RNICE_RATE"), values, sizeof(values));
	cr_expect_str_eq(values, "unlimited|1kbit..10tbit");
	rnice_setting_values(rnice_setting_find("RNICE_POLICY"), values, sizeof(values));
	cr_expect_str_eq(values, "off|observe|preempt|static");
}

Test(table, words_of_values_out_of_range_are_a_question_mark)
{
	cr_expect_str_eq(rnice_class_word(RNICE_CLASS_BULK), "bulk");
	cr_expect_str_eq(rnice_class_word(200), "?");
	cr_expect_str_eq(rnice_policy_word(RNICE_POLICY_STATIC), "static");
	cr_expect_str_eq(rnice_policy_word(200), "?");
}
