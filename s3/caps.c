#include "base/buf.h"
#include "s3/store.h"

/* One capability and what its absence means for the user. */
struct cap_row {
    size_t at; /* offset of the enum in struct store_caps */
    enum store_yes_no good;
    const char *missing;
    const char *not_probed;
};

#define CAP(field) offsetof(struct store_caps, field)
static const struct cap_row rows[] = {
    { CAP(put_if_absent), STORE_YES,
      "degraded: no conditional creation (If-None-Match): two writers of a new file may overwrite "
      "each other, so only the lease holder writes",
      "conditional creation (If-None-Match) was not proven" },
    { CAP(put_if_match), STORE_YES,
      "degraded: no conditional replacement (If-Match): a change from outside between look and "
      "write is not noticed, so only the lease holder writes",
      "conditional replacement (If-Match) was not proven" },
    { CAP(put_atomic), STORE_YES,
      "degraded: of parallel conditional writes more than one may succeed",
      "that exactly one of parallel conditional writes succeeds was not proven" },
    { CAP(delete_if_match), STORE_YES,
      "deletes: degraded: DELETE ignores conditions, so the object is looked at just before",
      "conditional deletion was not proven" },
    { CAP(copy_source_if_match), STORE_YES,
      "copies ignore the condition on their source, so the result is compared afterwards",
      "conditions on the source of a copy were not proven" },
    { CAP(server_side_copy), STORE_YES, "no copy inside the store: old versions are uploaded again",
      "copy was not proven" },
    { CAP(list_consistent), STORE_YES,
      "listings may miss fresh writes: leases by claims are not safe here",
      "that listings show fresh writes at once was not proven" },
    { CAP(presign), STORE_YES, "no presigned URLs: links are served by the gateway itself",
      "presigned URLs were not proven" },
    { CAP(folds_names), STORE_NO,
      "names that differ only in Unicode normalisation are one object here: the second is refused",
      "whether names keep their exact bytes was not proven" },
};

static enum store_yes_no
value_of(const struct store_caps *caps, const struct cap_row *row)
{
    return *(const enum store_yes_no *)((const char *)caps + row->at);
}

int
store_caps_explain(const struct store_caps *caps, struct buf *out, struct err *err)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        enum store_yes_no value = value_of(caps, &rows[i]);
        const char *text = value == STORE_NOT_PROBED ? rows[i].not_probed : rows[i].missing;
        if (value != rows[i].good && buf_appendf(out, err, "%s\n", text) < 0)
            return -1;
    }
    if (caps->min_write_interval_ns > 0 &&
        buf_appendf(out, err, "one write per key in %lld ms: files that change often wait\n",
                    (long long)(caps->min_write_interval_ns / 1000000)) < 0)
        return -1;
    return 0;
}
