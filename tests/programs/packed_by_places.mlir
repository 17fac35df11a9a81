// Attention to packed sequences: `of_q` and `of_x` say of each query and of each key to which sequence it belongs. Where
// the keys of a query begin and end is a minimum and a maximum of positions, which one stream finds and which limit the
// next one.

!Q = tensor<2x?x64xf16, #diagram.array<[h, q, d]>>
!K = tensor<2x?x64xf16, #diagram.array<[h, x, d]>>
!V = tensor<2x?x64xf16, #diagram.array<[h, x, e]>>
!sq = tensor<?xi32, #diagram.array<[q]>>
!sx = tensor<?xi32, #diagram.array<[x]>>
!at = tensor<?xi32, #diagram.array<[x]>>
!places = tensor<?x?xi32, #diagram.array<[q, x]>>
!S = tensor<2x?x?xf32, #diagram.array<[h, q, x]>>
!P = tensor<2x?x?xf16, #diagram.array<[h, q, x]>>
!A = tensor<2x?x64xf32, #diagram.array<[h, q, e]>>
!O = tensor<2x?x64xf16, #diagram.array<[h, q, e]>>

func.func @packed_by_places(
    %Q: !Q, %K: !K, %V: !V,
    %of_q: !sq {diagram.up_to = "x", diagram.ascending}, %of_x: !sx {diagram.up_to = "x", diagram.ascending}) -> !O
    attributes {sizes = #diagram.sizes<q = 333, x = 333>} {
  %position = diagram.index -> !at
  %at = diagram.map (%i = %position : !at) -> !places {
    diagram.yield %i : i32
  }
  %own = diagram.where %at if "of_x[x] == of_q[q]" with (of_x = %of_x : !sx, of_q = %of_q : !sq) : !places
  %first = diagram.reduce min %own over [x] : !places -> !sq
  %last = diagram.reduce max %own over [x] : !places -> !sq
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %W = diagram.where %S if "of_x[x] == of_q[q] and first[q] <= x <= last[q]"
      with (of_x = %of_x : !sx, of_q = %of_q : !sq, first = %first : !sq, last = %last : !sq) : !S
  %T = diagram.map (%s = %W : !S) -> !S {
    %scale = arith.constant 0.125 : f32
    %t = arith.mulf %s, %scale : f32
    diagram.yield %t : f32
  }
  %P = diagram.apply @softmax(%T) over [x] : (!S) -> !S
  %P16 = diagram.cast %P : !S -> !P
  %A = diagram.contract %P16, %V over [x] accumulate f32 : !P, !V -> !A
  %O = diagram.cast %A : !A -> !O
  func.return %O : !O
}
