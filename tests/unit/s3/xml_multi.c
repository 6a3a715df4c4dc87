#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "s3/xml_multi.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define TEXT(text) (text), strlen(text)
#define XML "<?xml version=\"1.0\" encoding=\"UTF-8\"?>"
#define NS "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\""

/* ---- one value ---- */

static void
initiated(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    char id[XML_UPLOAD_ID];
    /* From the API reference of CreateMultipartUpload. */
    const char *sample =
        XML "<InitiateMultipartUploadResult " NS "><Bucket>example-bucket</Bucket>"
            "<Key>example-object</Key><UploadId>VXBsb2FkIElEIGZvciA2aWWpbmcncyBteS1"
            "tb3ZpZS5tMnRzIHVwbG9hZA</UploadId></InitiateMultipartUploadResult>";
    assert_int_equal(xml_multi_initiated(TEXT(sample), id, &err), 0);
    assert_string_equal(id, "VXBsb2FkIElEIGZvciA2aWWpbmcncyBteS1tb3ZpZS5tMnRzIHVwbG9hZA");
    const char *const bad[] = {
        "",
        "<InitiateMultipartUploadResult><UploadId></UploadId></InitiateMultipartUploadResult>",
        "<InitiateMultipartUploadResult></InitiateMultipartUploadResult>",
        "<Error><Code>InternalError</Code><UploadId>x</UploadId></Error>",
        ("<InitiateMultipartUploadResult><UploadId>a</UploadId><UploadId>b</UploadId>"
         "</InitiateMultipartUploadResult>"),
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        assert_int_equal(xml_multi_initiated(TEXT(bad[i]), id, &err), -1);
        assert_int_equal(err.code, ERR_STORE_BAD_ANSWER);
    }
}

/* B019: white space may come first, an error after it, and only the whole result counts. */
static void
completed(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    char etag[LIMIT_ETAG];
    const char *sample =
        "  \r\n\n" XML "<CompleteMultipartUploadResult " NS ">"
        "<Location>http://Example-Bucket.s3.amazonaws.com/Example-Object</Location>"
        "<Bucket>Example-Bucket</Bucket><Key>Example-Object</Key>"
        "<ETag>\"3858f62230ac3c915f300c664312c11f-9\"</ETag>"
        "</CompleteMultipartUploadResult>";
    assert_int_equal(xml_multi_completed(TEXT(sample), etag, &err), 0);
    assert_string_equal(etag, "3858f62230ac3c915f300c664312c11f-9");
    /* Ceph RGW 16.2, as seen. */
    const char *rgw = XML "<CompleteMultipartUploadResult " NS "><Location>localhost/b/k</Location>"
                          "<Bucket>b</Bucket><Key>k</Key><ETag></ETag>"
                          "</CompleteMultipartUploadResult>";
    assert_int_equal(xml_multi_completed(TEXT(rgw), etag, &err), 0);
    assert_string_equal(etag, "");
    const char *const bad[] = {
        "    ",
        ("  " XML "<Error><Code>InternalError</Code></Error>"),
        "<CompleteMultipartUploadResult></CompleteMultipartUploadResult>",
        "<CompleteMultipartUploadResult><ETag>\"a-1\"</ETag>",
        "<CopyObjectResult><ETag>\"a-1\"</ETag></CopyObjectResult>",
    };
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(xml_multi_completed(TEXT(bad[i]), etag, &err), -1);
}

static void
part_copied(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    char etag[LIMIT_ETAG];
    const char *sample = XML "<CopyPartResult><LastModified>2011-04-11T20:34:56.000Z</LastModified>"
                             "<ETag>&quot;9b2cf535f27731c974343645a3985328&quot;</ETag>"
                             "</CopyPartResult>";
    assert_int_equal(xml_multi_part_copied(TEXT(sample), etag, &err), 0);
    assert_string_equal(etag, "9b2cf535f27731c974343645a3985328");
    assert_int_equal(
        xml_multi_part_copied(TEXT("<CopyPartResult><ETag></ETag></CopyPartResult>"), etag, &err),
        -1);
    assert_int_equal(xml_multi_part_copied(
                         TEXT("<Error><Code>SlowDown</Code><ETag>x</ETag></Error>"), etag, &err),
                     -1);
}

/* ---- what is sent ---- */

static void
completion(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    const char etag[2][LIMIT_ETAG] = { "a54357aff0632cce46d942af68356b38", "odd<&>" };
    scope_buf out;
    buf_init(&out, 10000);
    assert_int_equal(xml_multi_complete(etag, 2, &out, &err), 0);
    assert_string_equal(
        buf_cstr(&out),
        "<CompleteMultipartUpload " NS ">"
        "<Part><PartNumber>1</PartNumber><ETag>&quot;a54357aff0632cce46d942af68356b38&quot;</ETag>"
        "</Part><Part><PartNumber>2</PartNumber><ETag>&quot;odd&lt;&amp;&gt;&quot;</ETag></Part>"
        "</CompleteMultipartUpload>");
}

static void
deletion(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    scope_buf out;
    buf_init(&out, 10000);
    assert_int_equal(xml_multi_delete_begin(&out, &err), 0);
    assert_int_equal(xml_multi_delete_key("a&b<c>\"d'\xc3\xbc ]]>\t\r\n", &out, &err), 0);
    assert_int_equal(xml_multi_delete_end(&out, &err), 0);
    assert_string_equal(buf_cstr(&out),
                        "<Delete " NS "><Quiet>false</Quiet><Object><Key>a&amp;b&lt;c&gt;&quot;d'"
                        "\xc3\xbc ]]&gt;&#9;&#13;&#10;</Key></Object></Delete>");
}

/* XML 1.0, production [2] Char. */
static void
what_xml_can_carry(void **state)
{
    (void)state;
    const char *const good[] = {
        "a", "", "\t\n\r", "\xc2\x80", "\xed\x9f\xbf", "\xef\xbf\xbd", "\x7f", "\xf4\x8f\xbf\xbf"
    };
    const char *const bad[] = { "\x01",         "a\x1f",        "\x08z",        "\xff", "\xc3",
                                "\xed\xa0\x80", "\xef\xbf\xbe", "\xef\xbf\xbf", "\x0b" };
    for (size_t i = 0; i < COUNT(good); i++)
        assert_true(xml_multi_can_name(good[i]));
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_false(xml_multi_can_name(bad[i]));
}

/* ---- the list of uploads ---- */

static void
uploads(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct xml_uploads got;
    const char *page =
        XML "<ListMultipartUploadsResult " NS "><Bucket>bucket</Bucket><KeyMarker/>"
            "<NextKeyMarker>my%2Bmovie</NextKeyMarker><NextUploadIdMarker>YW55</NextUploadIdMarker>"
            "<EncodingType>url</EncodingType><MaxUploads>3</MaxUploads>"
            "<IsTruncated>true</IsTruncated><Upload><Key>my+divisor%2541</Key>"
            "<UploadId>XMgbGlrZSBlbHZpbmcncyBub3QgaGF2aW5nIG11Y2ggbHVjaw</UploadId>"
            "<Initiator><ID>x</ID></Initiator><Initiated>2010-11-10T20:48:33.000Z</Initiated>"
            "</Upload><Upload><Key>z</Key><UploadId>2~b</UploadId></Upload>"
            "</ListMultipartUploadsResult>";
    xml_uploads_init(&got);
    assert_int_equal(xml_multi_uploads(TEXT(page), &got, &err), 0);
    assert_int_equal(got.count, 2);
    assert_string_equal(got.entry[0].key, "my divisor%41");
    assert_string_equal(got.entry[0].id, "XMgbGlrZSBlbHZpbmcncyBub3QgaGF2aW5nIG11Y2ggbHVjaw");
    assert_true(got.entry[0].initiated_ns == 1289422113 * NS_PER_S);
    assert_true(got.entry[1].initiated_ns == 0);
    assert_true(got.truncated);
    assert_string_equal(got.next_key, "my+movie");
    assert_string_equal(got.next_id, "YW55");
    xml_uploads_release(&got);
}

#define UPLOAD(key) "<Upload><Key>" key "</Key><UploadId>i</UploadId></Upload>"
#define PAGE(uploads)                                                                    \
    "<ListMultipartUploadsResult><NextKeyMarker>m%20</NextKeyMarker><IsTruncated>true</" \
    "IsTruncated>" uploads "</ListMultipartUploadsResult>"

/* RGW encodes and does not say so; a store that does not encode at all shows it by its bytes. */
static void
uploads_that_say_no_encoding(void **state)
{
    (void)state;
    const struct {
        const char *page, *first, *marker;
    } rows[] = {
        { PAGE(UPLOAD("a%20b%2B%C3%BC%2541/x") UPLOAD("z")), "a b+\xc3\xbc%41/x", "z" },
        { PAGE(UPLOAD("a b%20c")), "a b%20c", "a b%20c" },
        { PAGE(UPLOAD("100%") UPLOAD("a%20b")), "100%", "a%20b" },
        { PAGE(UPLOAD("\xc3\xbc%41")), "\xc3\xbc%41", "\xc3\xbc%41" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct err err = ERR_INIT;
        struct xml_uploads got;
        xml_uploads_init(&got);
        assert_int_equal(xml_multi_uploads(TEXT(rows[i].page), &got, &err), 0);
        assert_string_equal(got.entry[0].key, rows[i].first);
        assert_string_equal(got.next_key, rows[i].marker);
        assert_string_equal(got.next_id, "i");
        xml_uploads_release(&got);
    }
}

static void
bad_uploads(void **state)
{
    (void)state;
    const char *const rows[] = {
        "",
        "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>",
        "<ListMultipartUploadsResult></ListMultipartUploadsResult>",
        "<ListMultipartUploadsResult><IsTruncated>maybe</IsTruncated></ListMultipartUploadsResult>",
        PAGE("<Upload><Key>a</Key></Upload>"),
        PAGE("<Upload><UploadId>a</UploadId></Upload>"),
        PAGE("<Upload><Key>a</Key><Key>b</Key><UploadId>a</UploadId></Upload>"),
        PAGE("<EncodingType>url</EncodingType>" UPLOAD("%zz")),
        PAGE(UPLOAD("a b&#x1;")),
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct err err = ERR_INIT;
        struct xml_uploads got;
        xml_uploads_init(&got);
        assert_int_equal(xml_multi_uploads(TEXT(rows[i]), &got, &err), -1);
        assert_int_equal(err.code, ERR_STORE_BAD_ANSWER);
        xml_uploads_release(&got);
    }
}

/* ---- deleted ---- */

static int
note(void *arg, const char *key, const char *code, const char *message, struct err *err)
{
    return buf_appendf(arg, err, "%s=%s:%s;", key, code, message);
}

static void
deleted(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    scope_buf got;
    /* From the API reference of DeleteObjects. */
    const char *sample = XML "<DeleteResult " NS "><Deleted><Key>sample1.txt</Key></Deleted>"
                             "<Error><Key>sample2.txt</Key><Code>AccessDenied</Code>"
                             "<Message>Access Denied</Message></Error>"
                             "<Deleted><Key>a&amp;b&#13;</Key><DeleteMarker>true</DeleteMarker>"
                             "</Deleted><Error><Key>x</Key></Error></DeleteResult>";
    buf_init(&got, 1000);
    assert_int_equal(xml_multi_deleted(TEXT(sample), note, &got, &err), 0);
    assert_string_equal(buf_cstr(&got),
                        "sample1.txt=:;sample2.txt=AccessDenied:Access Denied;a&b\r=:;x=Unknown:;");
    assert_int_equal(
        xml_multi_deleted(TEXT("<Error><Code>InternalError</Code></Error>"), note, &got, &err), -1);
    assert_int_equal(
        xml_multi_deleted(TEXT("<DeleteResult><Deleted><Key>a</Key></Deleted>"), note, &got, &err),
        -1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(initiated),   cmocka_unit_test(completed),
        cmocka_unit_test(part_copied), cmocka_unit_test(completion),
        cmocka_unit_test(deletion),    cmocka_unit_test(what_xml_can_carry),
        cmocka_unit_test(uploads),     cmocka_unit_test(uploads_that_say_no_encoding),
        cmocka_unit_test(bad_uploads), cmocka_unit_test(deleted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
