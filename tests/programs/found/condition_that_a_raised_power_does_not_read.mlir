// A factor of powers does not move into their exponents where its product lacks elements that the powers have.

!S = tensor<3x?xf32, #diagram.array<[q, x]>>
!H = tensor<3x?xf16, #diagram.array<[q, x]>>
!s = tensor<3xf32, #diagram.array<[q]>>
func.func @condition_that_a_raised_power_does_not_read(%S: !S) -> (!s, !s) attributes {sizes = #diagram.sizes<x = 11>} {
  %m = diagram.reduce max %S over [x] : !S -> !s
  %W = diagram.where %S if "x < 4" : !S
  %P = diagram.map (%a = %S : !S, %b = %m : !s) -> !S {
    %d = arith.subf %a, %b : f32
    %e = math.exp %d : f32
    diagram.yield %e : f32
  }
  %P8 = diagram.map (%a = %P : !S, %w = %W : !S) -> !S {
    %c = arith.constant 8.0 : f32
    %d = arith.mulf %a, %c : f32
    diagram.yield %d : f32
  }
  %l = diagram.reduce add %P over [x] : !S -> !s
  %h = diagram.cast %P8 : !S -> !H
  %h2 = diagram.cast %h : !H -> !S
  %l8 = diagram.reduce add %h2 over [x] : !S -> !s
  func.return %l, %l8 : !s, !s
}
