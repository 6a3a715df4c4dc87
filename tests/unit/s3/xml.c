#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "s3/xml.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void
error_document(void **state)
{
    (void)state;
    /* docs.aws.amazon.com, "Error responses". */
    const char *text =
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error>\n  <Code>NoSuchKey</Code>\n"
        "  <Message>The resource you requested does not exist</Message>\n"
        "  <Resource>/mybucket/myfoto.jpg</Resource>\n"
        "  <RequestId>4442587FB7D0A2F9</RequestId>\n</Error>";
    struct xml_error error;
    assert_true(xml_error_parse(text, strlen(text), &error));
    assert_string_equal(error.code, "NoSuchKey");
    assert_string_equal(error.message, "The resource you requested does not exist");
    assert_string_equal(error.region, "");
}

static void
no_error_document(void **state)
{
    (void)state;
    const char *rows[] = {
        "",
        "   ",
        "plain",
        "<html><body>502</body></html>",
        "<Error><Code>X</Code>",
        "<Error></Error>",
        "<CopyObjectResult><ETag>\"x\"</ETag></CopyObjectResult>",
        /* Expat tells the end of an empty element also when its beginning was refused. */
        "<AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA/>",
        "<Error><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><Code/>",
        "<!DOCTYPE Error [<!ENTITY a \"b\">]><Error><Code>&a;</Code></Error>",
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct xml_error error;
        assert_false(xml_error_parse(rows[i], strlen(rows[i]), &error));
    }
}

static const char page[] =
    "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
    "<Name>b</Name><Prefix></Prefix><KeyCount>3</KeyCount><MaxKeys>1000</MaxKeys>"
    "<EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>"
    "<NextContinuationToken>1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM=</NextContinuationToken>"
    "<Contents><Key>a%26amp%3B+b</Key><LastModified>2009-10-12T17:50:30.000Z</LastModified>"
    "<ETag>&quot;fba9dede5f27731c9771645a39863328&quot;</ETag><Size>434234</Size>"
    "<Owner><ID>x</ID><DisplayName>Key</DisplayName></Owner></Contents>"
    "<Contents><Key>b/x%252F</Key><LastModified>2009-10-12T17:50:30.000Z</LastModified>"
    "<ETag>e</ETag><Size>0</Size></Contents>"
    "<CommonPrefixes><Prefix>ab/</Prefix></CommonPrefixes></ListBucketResult>";

/* B077, B078 */
static void
list_page(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct xml_list list;
    xml_list_init(&list);
    assert_int_equal(xml_list_parse(page, strlen(page), &list, &err), 0);
    assert_int_equal(list.count, 3);
    assert_string_equal(list.entry[0].key, "a&amp; b"); /* unescaped once, decoded once */
    assert_int_equal(list.entry[0].size, 434234);
    assert_string_equal(list.entry[0].etag, "fba9dede5f27731c9771645a39863328");
    assert_true(list.entry[0].last_modified_ns == 1255369830 * NS_PER_S);
    assert_string_equal(list.entry[1].key, "ab/"); /* merged between the keys */
    assert_true(list.entry[1].is_prefix);
    assert_string_equal(list.entry[2].key, "b/x%2F");
    assert_true(list.truncated);
    assert_string_equal(list.next_token, "1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM=");
    xml_list_release(&list);
}

#define ENTRY(key)                                                                      \
    "<Contents><Key>" key "</Key><LastModified>2009-10-12T17:50:30.000Z</LastModified>" \
    "<ETag>e</ETag><Size>1</Size></Contents>"
#define LIST(body) "<ListBucketResult><IsTruncated>false</IsTruncated>" body "</ListBucketResult>"

/* B078 */
static void
list_not_encoded(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct xml_list list;
    const char *text = LIST(ENTRY("a%20+b"));
    xml_list_init(&list);
    assert_int_equal(xml_list_parse(text, strlen(text), &list, &err), 0);
    assert_string_equal(list.entry[0].key, "a%20+b");
    assert_null(list.next_token);
    xml_list_release(&list);
}

/* RGW echoes a prefix as it is. */
static void
list_with_an_echo_that_is_no_xml(void **state)
{
    (void)state;
    const char *echoes[] = { "&#x1;", "&#11;", "\x01", "\xef\xbf\xbe", "\xff", "&#xFFFF;", "\xc3" };
    for (size_t i = 0; i < COUNT(echoes); i++) {
        struct err err = ERR_INIT;
        struct xml_list list;
        char text[512];
        xml_list_init(&list);
        (void)snprintf(text, sizeof(text),
                       LIST("<Prefix>a%sb</Prefix><EncodingType>url</EncodingType>" ENTRY("a%%01")),
                       echoes[i]);
        assert_int_equal(xml_list_parse(text, strlen(text), &list, &err), 0);
        assert_string_equal(list.entry[0].key, "a\x01");
        xml_list_release(&list);
        (void)snprintf(text, sizeof(text), LIST("<Prefix>a%sb</Prefix>" ENTRY("a")), echoes[i]);
        assert_int_equal(xml_list_parse(text, strlen(text), &list, &err), -1);
        assert_int_equal(err.code, ERR_STORE_BAD_ANSWER);
        xml_list_release(&list);
    }
}

/* INV-9: what is not a whole page is not believed. */
static void
bad_lists(void **state)
{
    (void)state;
    const char *rows[] = {
        "",
        "<ListBucketResult/>",
        "<Error><Code>X</Code></Error>",
        "<ListBucketResult><IsTruncated>false</IsTruncated>",
        LIST(ENTRY("b") ENTRY("a")),
        LIST(ENTRY("a") ENTRY("a")),
        LIST("<Contents><Size>1</Size></Contents>"),
        LIST("<Contents><Key>a</Key><Key>b</Key></Contents>"),
        LIST("<Contents><Key>a</Key><Size>-1</Size></Contents>"),
        LIST("<Contents><Key>a</Key><Size>1</Size></Contents>"),
        LIST("<EncodingType>url</EncodingType>" ENTRY("a%2")),
        LIST("<EncodingType>base64</EncodingType>" ENTRY("a")),
        LIST("<CommonPrefixes></CommonPrefixes>"),
        "<!DOCTYPE x>" LIST(ENTRY("a")),
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct err err = ERR_INIT;
        struct xml_list list;
        xml_list_init(&list);
        assert_int_equal(xml_list_parse(rows[i], strlen(rows[i]), &list, &err), -1);
        assert_int_equal(err.code, ERR_STORE_BAD_ANSWER);
        xml_list_release(&list);
    }
}

static void
copy_result(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    char etag[LIMIT_ETAG];
    const char *good = "<CopyObjectResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
                       "<LastModified>2009-10-12T17:50:30.000Z</LastModified>"
                       "<ETag>\"9b2cf535f27731c974343645a3985328\"</ETag></CopyObjectResult>";
    const char *error = "<Error><Code>InternalError</Code><ETag>\"x\"</ETag></Error>";
    assert_int_equal(xml_copy_parse(good, strlen(good), etag, &err), 0);
    assert_string_equal(etag, "9b2cf535f27731c974343645a3985328");
    assert_int_equal(xml_copy_parse(error, strlen(error), etag, &err), -1);
    assert_int_equal(err.code, ERR_STORE_BAD_ANSWER);
}

/* B088 */
static void
etags(void **state)
{
    (void)state;
    const struct {
        const char *text, *want;
    } rows[] = {
        { "\"abc\"", "abc" },   { "abc", "abc" },     { "W/\"abc\"", "abc" },
        { " \"a-2\" ", "a-2" }, { "", NULL },         { "\"\"", NULL },
        { "\"a b\"", NULL },    { "\"a\"b\"", NULL }, { "\"a\nb\"", NULL },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char etag[LIMIT_ETAG];
        int result = etag_strip(rows[i].text, etag);
        assert_int_equal(result, rows[i].want ? 0 : -1);
        if (rows[i].want)
            assert_string_equal(etag, rows[i].want);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_document),
        cmocka_unit_test(no_error_document),
        cmocka_unit_test(list_page),
        cmocka_unit_test(list_not_encoded),
        cmocka_unit_test(list_with_an_echo_that_is_no_xml),
        cmocka_unit_test(bad_lists),
        cmocka_unit_test(copy_result),
        cmocka_unit_test(etags),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
