#include "kernels/embedding/embedding_op.h"

#include "kernels/row_matrix.h"
#include "kernels/validate.h"

namespace concert::kernels {
namespace {

Failure CheckScalars(const concert_descriptor& descriptor, const concert_embedding_body& body) {
  CONCERT_RETURN_IF_FAILED(CheckUnused(descriptor, body.reserved0 | body.reserved1 |
                                                       body.reserved2 | AnyOf(body.reserved3) |
                                                       ScalesOf({body.ids, body.table, body.out})));
  CONCERT_RETURN_IF_FAILED(CheckDtype(body.dtype, CONCERT_ABI_FP32));
  CONCERT_RETURN_IF_FAILED(CheckIndexType(CONCERT_FIELD_INDEX_DTYPE, body.index_dtype));
  CONCERT_RETURN_IF_FAILED(CheckRange(CONCERT_FIELD_VOCABULARY, body.vocabulary, 1, kMaxRows));
  return CheckRowsAndColumns(body.rows, body.columns);
}

policies::Work WorkOf(const EmbeddingArgs& args) {
  policies::Work work;
  work.carrier = policies::Carrier::kRows;
  work.dtype = args.dtype;
  work.m = args.rows;
  work.n = args.columns;
  work.hbm_bytes = 2 * uint64_t{args.rows} * args.columns * DtypeBytes(args.dtype) +
                   uint64_t{args.rows} * IndexBytes(args.index_type);
  return work;
}

}  // namespace

Failure AdmitEmbedding(const concert_descriptor& descriptor, const AdmitContext& context, Op& op) {
  const concert_embedding_body& body = descriptor.body.embedding;
  CONCERT_RETURN_IF_FAILED(CheckScalars(descriptor, body));
  const auto dtype = static_cast<Dtype>(body.dtype);
  const auto index_type = static_cast<IndexType>(body.index_dtype);
  OperandResolver resolver(context, op);
  ByteRange ids, table, out;
  CONCERT_RETURN_IF_FAILED(resolver.Resolve(CONCERT_FIELD_IDS, body.ids, uint64_t{body.rows},
                                            IndexBytes(index_type), ids));
  CONCERT_RETURN_IF_FAILED(ResolveRows(
      resolver, {CONCERT_FIELD_TABLE, CONCERT_FIELD_TABLE_STRIDE}, body.table,
      {.rows = body.vocabulary, .columns = body.columns, .row_stride = body.table_stride}, dtype,
      table));
  CONCERT_RETURN_IF_FAILED(ResolveRows(
      resolver, {CONCERT_FIELD_OUT, CONCERT_FIELD_OUT_STRIDE}, body.out,
      {.rows = body.rows, .columns = body.columns, .row_stride = body.out_stride}, dtype, out));
  op.kind = CONCERT_OP_EMBEDDING;
  op.embedding = {
      .rows = body.rows,
      .columns = body.columns,
      .vocabulary = body.vocabulary,
      .ids = ids.begin,
      .table = table.begin,
      .out = out.begin,
      .table_stride = body.table_stride,
      .out_stride = body.out_stride,
      .dtype = dtype,
      .index_type = index_type,
  };
  op.work = WorkOf(op.embedding);
  return CheckOverlaps(AccessesOfEmbedding(op));
}

Accesses AccessesOfEmbedding(const Op& op) {
  const EmbeddingArgs& args = op.embedding;
  const uint64_t element = DtypeBytes(args.dtype), row_bytes = args.columns * element;
  Accesses accesses;
  accesses.Add(op, CONCERT_FIELD_IDS, AccessMode::kRead)
      .Set(args.ids, uint64_t{args.rows} * IndexBytes(args.index_type));
  accesses.Add(op, CONCERT_FIELD_TABLE, AccessMode::kReadEarly)
      .Set(args.table, row_bytes, args.vocabulary, args.table_stride * element);
  accesses.Add(op, CONCERT_FIELD_OUT, AccessMode::kWrite)
      .Set(args.out, row_bytes, args.rows, args.out_stride * element);
  return accesses;
}

}  // namespace concert::kernels
