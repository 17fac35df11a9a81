// The delta rule of linear attention (DeltaNet): what a state says of a key, of unit length, moves towards its value, by
// a part that each token has for itself; queries read the state. No law merges parts of such a row, so that the state is
// taken from token to token, in registers.
//
//   treadle run examples/delta_rule.mlir --size t=200

!Q = tensor<?x?x64xf16, #diagram.array<[h, t, d]>>
!V = tensor<?x?x?xf16, #diagram.array<[h, t, e]>>
!B = tensor<?x?xf32, #diagram.array<[h, t]>>
!S = tensor<?x64x?xf32, #diagram.array<[h, d, e]>>
!q = tensor<?x64xf16, #diagram.array<[h, d]>>
!k = tensor<?x64xf32, #diagram.array<[h, d]>>
!v = tensor<?x?xf16, #diagram.array<[h, e]>>
!p = tensor<?x?xf32, #diagram.array<[h, e]>>
!b = tensor<?xf32, #diagram.array<[h]>>

func.func @delta_rule(%Q: !Q, %K: !Q, %V: !V, %B: !B) -> (!V, !S)
    attributes {sizes = #diagram.sizes<h = 4, t = 60, e = 64>} {
  %empty = diagram.fill 0.0 : f32 -> !S
  %S, %O = diagram.recurrence over t (%s = %empty : !S)
      each (%q = %Q : !Q, %k = %K : !Q, %v = %V : !V, %b = %B : !B) -> (!S, !V) {
    %wide = diagram.cast %k : !q -> !k
    %square = diagram.map (%x = %wide : !k) -> !k {
      %y = arith.mulf %x, %x : f32
      diagram.yield %y : f32
    }
    %norm = diagram.reduce add %square over [d] : !k -> !b
    %unit = diagram.map (%x = %wide : !k, %n = %norm : !b) -> !k {
      %tiny = arith.constant 1.0e-6 : f32
      %m = arith.addf %n, %tiny : f32
      %r = math.rsqrt %m : f32
      %y = arith.mulf %x, %r : f32
      diagram.yield %y : f32
    }
    %said = diagram.contract %unit, %s over [d] accumulate f32 : !k, !S -> !p
    %moves = diagram.map (%x = %v : !v, %y = %said : !p, %l = %b : !b) -> !p {
      %one = arith.constant 1.0 : f32
      %minus = arith.negf %l : f32
      %power = math.exp %minus : f32
      %whole = arith.addf %one, %power : f32
      %z = arith.extf %x : f16 to f32
      %wrong = arith.subf %z, %y : f32
      %move = arith.divf %wrong, %whole : f32
      diagram.yield %move : f32
    }
    %after = diagram.map (%old = %s : !S, %x = %unit : !k, %w = %moves : !p) -> !S {
      %add = arith.mulf %x, %w : f32
      %new = arith.addf %old, %add : f32
      diagram.yield %new : f32
    }
    %query = diagram.cast %q : !q -> !k
    %read = diagram.contract %query, %after over [d] accumulate f32 : !k, !S -> !p
    %o = diagram.cast %read : !p -> !v
    diagram.yield %after, %o : !S, !v
  }
  func.return %O, %S : !V, !S
}
