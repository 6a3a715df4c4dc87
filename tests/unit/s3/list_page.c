#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "s3/list_page.h"

/* Pages of listings that are true, and some that cannot be. */

struct names {
    char text[4096];
};

static int
take(void *arg, const struct store_list_entry *entry, struct err *err)
{
    struct names *names = arg;
    size_t used = strlen(names->text);
    (void)err;
    (void)snprintf(names->text + used, sizeof(names->text) - used, "%s ", entry->key);
    return 0;
}

/* "key" or "prefix/" with a slash at its end, blank between them; `token` NULL: the last page. */
static int
pass(struct list_pages *pages, const char *entries, const char *token, struct err *err)
{
    char list[2048], xml[16384];
    char *rest = NULL;
    struct xml_list page;
    int at = snprintf(xml, sizeof(xml), "<ListBucketResult><IsTruncated>%s</IsTruncated>",
                      token ? "true" : "false");
    if (token)
        at += snprintf(xml + at, sizeof(xml) - (size_t)at,
                       "<NextContinuationToken>%s</NextContinuationToken>", token);
    (void)snprintf(list, sizeof(list), "%s", entries);
    for (char *key = strtok_r(list, " ", &rest); key; key = strtok_r(NULL, " ", &rest)) {
        bool prefix = key[strlen(key) - 1] == '/' && pages->req->delimiter;
        if (prefix && strcmp(key, "own/d/") != 0)
            at += snprintf(xml + at, sizeof(xml) - (size_t)at,
                           "<CommonPrefixes><Prefix>%s</Prefix></CommonPrefixes>", key);
        else
            at +=
                snprintf(xml + at, sizeof(xml) - (size_t)at,
                         "<Contents><Key>%s</Key><LastModified>2026-01-02T03:04:05Z</LastModified>"
                         "<ETag>e</ETag><Size>1</Size></Contents>",
                         key);
    }
    at += snprintf(xml + at, sizeof(xml) - (size_t)at, "</ListBucketResult>");
    xml_list_init(&page);
    int rc = xml_list_parse(xml, (size_t)at, &page, err);
    if (rc == 0)
        rc = list_pages_pass(pages, &page, err);
    xml_list_release(&page);
    return rc;
}

static struct names names;
static struct store_list req;
static struct list_pages pages;
static struct err err;

static int
setup(void **state)
{
    (void)state;
    names.text[0] = '\0';
    req = (struct store_list){ .prefix = "d/", .delimiter = '/', .fn = take, .arg = &names };
    err = (struct err)ERR_INIT;
    list_pages_init(&pages, &req, "own/");
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    list_pages_release(&pages);
    return 0;
}

static void
assert_refused(const char *entries, const char *token)
{
    assert_int_equal(pass(&pages, entries, token, &err), -1);
    assert_int_equal(err.code, ERR_STORE_BAD_ANSWER);
}

/* B068: prefixes sort with their slash; across pages too. */
static void
pages_make_one_listing(void **state)
{
    (void)state;
    assert_int_equal(pass(&pages, "own/d/ own/d/2019-0001/ own/d/2019.txt", "t", &err), 0);
    assert_false(pages.finished);
    assert_string_equal(pages.token, "t");
    assert_int_equal(pass(&pages, "own/d/2019/ own/d/z", NULL, &err), 0);
    assert_true(pages.finished);
    assert_string_equal(names.text, "d/ d/2019-0001/ d/2019.txt d/2019/ d/z ");
}

/* B071: an empty page is not an empty listing. */
static void
an_empty_page_goes_on(void **state)
{
    (void)state;
    assert_int_equal(pass(&pages, "", "t1", &err), 0);
    assert_false(pages.finished);
    assert_int_equal(pass(&pages, "own/d/a", NULL, &err), 0);
    assert_string_equal(names.text, "d/a ");
}

/* B066: a server that does not know the token gives the first page again. */
static void
a_page_that_comes_again_is_refused(void **state)
{
    (void)state;
    assert_int_equal(pass(&pages, "own/d/a own/d/b", "t1", &err), 0);
    assert_refused("own/d/a own/d/b", "t2");
}

/* B066: empty pages whose tokens go round. */
static void
tokens_that_go_round_end(void **state)
{
    (void)state;
    char token[16];
    int rc = 0, count = 0;
    for (; rc == 0 && count < 64; count++) {
        (void)snprintf(token, sizeof(token), "t%d", count < 5 ? count : 5 + (count - 5) % 3);
        rc = pass(&pages, "", token, &err);
    }
    assert_int_equal(rc, -1);
    assert_int_equal(err.code, ERR_STORE_BAD_ANSWER);
}

static void
a_long_listing_of_empty_pages_ends_well(void **state)
{
    (void)state;
    char token[16];
    for (int i = 0; i < 1000; i++) {
        (void)snprintf(token, sizeof(token), "t%d", i);
        assert_int_equal(pass(&pages, "", token, &err), 0);
    }
    assert_int_equal(pass(&pages, "own/d/a", NULL, &err), 0);
    assert_true(pages.finished);
}

static void
what_was_not_asked_for_is_refused(void **state)
{
    static const char *const bad[] = { "own/e/a", "other/d/a", "own/d/a/b", "own/d/a/b/", "own/d" };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        setup(state);
        assert_refused(bad[i], NULL);
        assert_string_equal(names.text, "");
        teardown(state);
    }
    setup(state);
    req.start_after = "d/m";
    assert_refused("own/d/a", NULL);
    teardown(state);
    /* A prefix may begin before the start and reach behind it. */
    setup(state);
    req.start_after = "d/m/x";
    assert_int_equal(pass(&pages, "own/d/m/ own/d/n", NULL, &err), 0);
    assert_string_equal(names.text, "d/n ");
}

static void
keys_that_are_too_long_are_refused(void **state)
{
    (void)state;
    char key[1200];
    (void)snprintf(key, sizeof(key), "own/d/%01023d", 7);
    assert_refused(key, NULL); /* 1,025 bytes behind the store's prefix */
    teardown(state);
    setup(state);
    (void)snprintf(key, sizeof(key), "own/d/%01022d", 7);
    assert_int_equal(pass(&pages, key, NULL, &err), 0);
}

static void
a_limit_ends_it(void **state)
{
    (void)state;
    req.limit = 2;
    assert_int_equal(pass(&pages, "own/d/a own/d/b own/d/c", "t", &err), 0);
    assert_true(pages.finished);
    assert_string_equal(names.text, "d/a d/b ");
}

int
main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(pages_make_one_listing),
        T(an_empty_page_goes_on),
        T(a_page_that_comes_again_is_refused),
        T(tokens_that_go_round_end),
        T(a_long_listing_of_empty_pages_ends_well),
        T(what_was_not_asked_for_is_refused),
        T(keys_that_are_too_long_are_refused),
        T(a_limit_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
